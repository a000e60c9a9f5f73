"""Rules of composite operators hold while a program is traced, and leave nothing behind."""

from __future__ import annotations

from typing import Any

import torch
from torch._C import DispatchKey
from torch._subclasses.fake_impls import op_implementations_dict as fake_kernels
from torch.export.exported_program import _override_composite_implicit_decomp

from mlirstack.frontend.composite import CompositeRules

SILU, MATMUL = torch.ops.aten.silu_backward.default, torch.ops.aten.matmul.default


def rule(*args: Any) -> Any:
    return NotImplemented


def registered(op: Any) -> tuple[dict[Any, Any], Any]:
    return dict(op.py_kernels), fake_kernels.get(op)


def kinds_of_kernels(op: Any) -> tuple[dict[Any, str], bool]:
    """Two registrations make two closures of one function: they are equal by its name."""
    kernels, fake_kernel = registered(op)
    return {
        key: getattr(kernel, "__qualname__", type(kernel).__name__) for key, kernel in kernels.items()
    }, fake_kernel is not None


def test_what_holds_inside_is_what_torch_registers_each_time() -> None:
    given = {SILU: rule, MATMUL: rule}
    with _override_composite_implicit_decomp(given):
        expected = {op: kinds_of_kernels(op) for op in given}
    rules = CompositeRules(given)
    before = {op: registered(op) for op in given}
    for _ in range(3):
        with rules.in_place():
            assert {op: kinds_of_kernels(op) for op in given} == expected
            assert MATMUL.py_kernels[DispatchKey.CompositeImplicitAutograd] is rule
        assert {op: registered(op) for op in given} == before


def test_what_was_registered_before_is_there_afterwards() -> None:
    rules = CompositeRules({MATMUL: rule})
    fake_kernels[MATMUL] = own = lambda mode, op, *args: 1
    try:
        for _ in range(2):
            with rules.in_place():
                assert fake_kernels[MATMUL] is own  # torch leaves what it finds
            assert fake_kernels[MATMUL] is own
    finally:
        del fake_kernels[MATMUL]
    with rules.in_place():
        assert fake_kernels[MATMUL] is not own  # there is none any more, so torch makes one
    assert MATMUL not in fake_kernels


def test_a_failure_inside_removes_the_rules() -> None:
    rules = CompositeRules({MATMUL: rule})
    before = registered(MATMUL)
    try:
        with rules.in_place():
            raise KeyError
    except KeyError:
        assert registered(MATMUL) == before


def test_a_kernel_that_somebody_registers_later_holds_inside() -> None:
    rules = CompositeRules({MATMUL: rule})
    with rules.in_place():
        pass
    MATMUL.py_impl(DispatchKey.AutogradXLA)(rule)
    try:
        with rules.in_place():
            assert MATMUL.py_kernels[DispatchKey.AutogradXLA] is rule
        assert MATMUL.py_kernels[DispatchKey.AutogradXLA] is rule
    finally:
        del MATMUL.py_kernels[DispatchKey.AutogradXLA]
        MATMUL._dispatch_cache.clear()
