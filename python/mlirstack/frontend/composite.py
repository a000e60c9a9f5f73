"""Rules of composite operators, in place for as long as a program is traced.

Torch registers some twenty kernels for each of five hundred operators before it decomposes a program, and removes them
afterwards, which takes longer than tracing a small model.  They are the same each time: made once, they are put in place
by copying tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch._subclasses.fake_impls import op_implementations_dict as fake_kernels
from torch.export.exported_program import _override_composite_implicit_decomp

_Tables = dict[Any, tuple[dict[Any, Any], Any]]  # operator → its kernels by dispatch key, and that of fake tensors


class CompositeRules:
    """``rules``: operator overload of torch that is made of others → its decomposition, or what says that it stays whole."""

    def __init__(self, rules: Mapping[Any, Callable[..., Any]]) -> None:
        self._rules = dict(rules)
        self._before: _Tables = {}
        self._inside: _Tables = {}

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The rules hold inside, as torch makes them hold; what was registered before is there again afterwards."""
        before = self._tables()
        if before != self._before:  # the first time, or somebody has registered a kernel since
            with _override_composite_implicit_decomp(self._rules):
                self._inside = self._tables()
            self._before = before
        try:
            _register(self._inside)
            yield
        finally:
            _register(before)

    def _tables(self) -> _Tables:
        return {op: (op.py_kernels.copy(), fake_kernels.get(op)) for op in self._rules}


def _register(tables: _Tables) -> None:
    for op, (kernels, fake_kernel) in tables.items():
        op.py_kernels.clear()
        op.py_kernels.update(kernels)
        op._dispatch_cache.clear()
        if fake_kernel is None:
            fake_kernels.pop(op, None)
        else:
            fake_kernels[op] = fake_kernel
