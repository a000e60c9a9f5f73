"""Small programs for the tests of ``explain``, each with a known answer.

A comment ``# break: CATEGORY`` marks a line at which Dynamo breaks the graph, in the category that the report must give it.
How many graphs and recompilations a program has stands beside it, counted by hand.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

Tensor = torch.Tensor
log = logging.getLogger("explain_programs")


def vector(size: int = 8, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.arange(1, size + 1, dtype=dtype)


# ------------------------------------------------------------------------------------------------------------ no breaks


def straight(x: Tensor) -> Tensor:
    return torch.relu(x + 1).sum()


def nested_calls(x: Tensor) -> Tensor:
    def inner(y: Tensor) -> Tensor:
        def innermost(z: Tensor) -> Tensor:
            return z * 2

        return innermost(y) + 1

    return inner(inner(x))


def loop_over_range(x: Tensor) -> Tensor:
    for step in range(3):
        x = x * step + 1
    return x


def generator_function(x: Tensor) -> Tensor:
    def pieces() -> Iterator[Tensor]:
        yield x + 1
        yield x * 2

    return sum(pieces())


@contextlib.contextmanager
def quiet_context() -> Iterator[None]:
    yield


def context_manager(x: Tensor) -> Tensor:
    with quiet_context(), torch.no_grad():
        return x + 1


def try_except(x: Tensor) -> Tensor:
    try:
        raise ValueError("no")
    except ValueError:
        return x + 1


def numpy_call(x: Tensor) -> Tensor:
    return torch.from_numpy(np.sin(x.numpy())) + 1


def plain_assert(x: Tensor) -> Tensor:
    assert x.shape[0] > 2
    return x + 1


def inference_mode(x: Tensor) -> Tensor:
    with torch.inference_mode():
        return x.sin() + 1


# ----------------------------------------------------------------------------------------------------- print, log, debug


def print_once(x: Tensor) -> Tensor:
    y = x + 1
    print("half way")  # break: debug
    return y * 2


def print_in_loop(x: Tensor) -> Tensor:
    for _ in range(3):
        x = x + 1
        print("again")  # break: debug
    return x


def print_twice(x: Tensor) -> Tensor:
    y = x + 1
    print("one")  # break: debug
    y = y * 2
    print("two")  # break: debug
    return y - 3


def logging_call(x: Tensor) -> Tensor:
    y = x + 1
    log.info("the sum is ready")  # break: debug
    return y * 2


def warning_call(x: Tensor) -> Tensor:
    y = x + 1
    warnings.warn("careful", stacklevel=1)  # break: debug
    return y * 2


def print_helper(x: Tensor) -> Tensor:
    y = x + 1
    print("in the callee")  # break: debug
    return y * 2


def break_in_callee(x: Tensor) -> Tensor:
    return print_helper(x * 3) - 1


def callee_in_loop(x: Tensor) -> Tensor:
    for _ in range(2):
        x = print_helper(x)
    return x


# --------------------------------------------------------------------------------------- values of tensors decide the way


def data_dependent_if(x: Tensor) -> Tensor:
    y = x + 1
    if y.sum() > 0:  # break: data-dependent
        return y * 2
    return y - 1


def data_dependent_while(x: Tensor) -> Tensor:
    while x.sum() < 100:  # break: data-dependent
        x = x * 2
    return x


def data_dependent_for(x: Tensor) -> Tensor:
    for value in x.tolist():  # break: data-dependent
        x = x + value
    return x


def item_call(x: Tensor) -> Tensor:
    scale = x.abs().max().item()  # break: data-dependent
    return x / scale


def tolist_call(x: Tensor) -> Tensor:
    weights = (x * 2).tolist()  # break: data-dependent
    return x + weights[0]


def tensor_assert(x: Tensor) -> Tensor:
    y = x + 1
    assert bool((y > 0).all()), "negative"  # break: data-dependent
    return y * 2


def nonzero_call(x: Tensor) -> Tensor:
    return torch.nonzero(x) + 1  # break: dynamic-shape


# ------------------------------------------------------------------------------------------------------ unsupported calls


process_number = ctypes.CDLL(None).getpid


def ctypes_call(x: Tensor) -> Tensor:
    y = x + 1
    process_number()  # break: unsupported-call
    return y * 2


@torch._dynamo.disable
def disabled_helper(x: Tensor) -> Tensor:
    return x * 3


def disabled_call(x: Tensor) -> Tensor:
    y = x + 1
    y = disabled_helper(y)  # break: unsupported-call
    return y * 2


def explicit_break(x: Tensor) -> Tensor:
    y = x + 1
    torch._dynamo.graph_break()  # break: other
    return y * 2


@torch.library.custom_op("explain_programs::with_fake", mutates_args=())
def op_with_fake(x: Tensor) -> Tensor:
    return x * 2


@op_with_fake.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("explain_programs::without_fake", mutates_args=())
def op_without_fake(x: Tensor) -> Tensor:
    return x * 2


def custom_op_with_fake(x: Tensor) -> Tensor:
    return op_with_fake(x + 1) - 1


def custom_op_without_fake(x: Tensor) -> Tensor:
    y = x + 1
    y = op_without_fake(y)  # break: custom-op
    return y - 1


# ----------------------------------------------------------------------------------------------------------- recompilations

SCALE = 2


def reads_global(x: Tensor) -> Tensor:
    return x * SCALE


def set_scale(value: int) -> None:
    globals()["SCALE"] = value


class WithAttribute(nn.Module):
    """A module whose attribute is part of the guard."""

    def __init__(self) -> None:
        super().__init__()
        self.power = 2

    def forward(self, x: Tensor) -> Tensor:
        return x**self.power


class CountsCalls(nn.Module):
    """A module that changes its own attribute in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = "|"

    def forward(self, x: Tensor) -> Tensor:
        self.calls = self.calls + "|"
        return x * len(self.calls)


@dataclass(frozen=True)
class Program:
    """``build`` gives the function and its calls, each a thunk; ``graphs`` and ``recompiles`` are the right counts.

    ``changed``: what the guards of the recompilations saw change, in order.  ``sources``: functions that hold marked lines.
    """

    build: Callable[[], tuple[Callable[..., Any], list[Callable[[Callable[..., Any]], Any]]]]
    graphs: int
    recompiles: int = 0
    changed: tuple[str, ...] = ()
    sources: tuple[Callable[..., Any], ...] = field(default=())

    def breaks(self) -> list[tuple[int, str]]:
        """Line and category of each marked line."""
        found = []
        for function in self.sources:
            lines, first = inspect.getsourcelines(function)
            for number, text in enumerate(lines, first):
                marked = re.search(r"# break: ([\w-]+)", text)
                if marked:
                    found.append((number, marked[1]))
        return sorted(found)


def once(function: Callable[..., Any], graphs: int, *sources: Callable[..., Any]) -> Program:
    return Program(lambda: (function, [lambda compiled: compiled(vector())]), graphs, sources=sources or (function,))


def calls(function: Callable[..., Any], *inputs: Tensor) -> Any:
    return function, [lambda compiled, x=x: compiled(x) for x in inputs]


def _global_change() -> Any:
    set_scale(2)

    def changed(compiled: Callable[..., Any]) -> Any:
        set_scale(3)
        return compiled(vector())

    return reads_global, [lambda compiled: compiled(vector()), changed]


def _attribute_change() -> Any:
    module = WithAttribute()

    def changed(compiled: Callable[..., Any]) -> Any:
        module.power = 3
        return compiled(vector())

    return module, [lambda compiled: compiled(vector()), changed]


def _grad_mode_change() -> Any:
    def without(compiled: Callable[..., Any]) -> Any:
        with torch.no_grad():
            return compiled(vector())

    return straight, [lambda compiled: compiled(vector()), without]


PROGRAMS: dict[str, Program] = {
    "straight": once(straight, 1),
    "nested_calls": once(nested_calls, 1),
    "loop_over_range": once(loop_over_range, 1),
    "generator": once(generator_function, 1),
    "context_manager": once(context_manager, 1),
    "try_except": once(try_except, 1),
    "numpy_call": once(numpy_call, 1),
    "plain_assert": once(plain_assert, 1),
    "inference_mode": once(inference_mode, 1),
    "print_once": once(print_once, 2),
    "print_in_loop": once(print_in_loop, 0),
    "print_twice": once(print_twice, 3),
    "logging_call": once(logging_call, 2),
    "warning_call": once(warning_call, 2),
    "break_in_callee": once(break_in_callee, 4, print_helper),
    "callee_in_loop": once(callee_in_loop, 2, print_helper),
    "data_dependent_if": once(data_dependent_if, 2),
    "data_dependent_while": once(data_dependent_while, 2),
    "data_dependent_for": once(data_dependent_for, 1),
    "item_call": once(item_call, 2),
    "tolist_call": once(tolist_call, 2),
    "tensor_assert": once(tensor_assert, 2),
    "nonzero_call": once(nonzero_call, 1),
    "ctypes_call": once(ctypes_call, 2),
    "disabled_call": once(disabled_call, 2),
    "explicit_break": once(explicit_break, 2),
    "custom_op_with_fake": once(custom_op_with_fake, 1),
    "custom_op_without_fake": once(custom_op_without_fake, 0),
    "same_shape_twice": Program(lambda: calls(straight, vector(), vector()), 1),
    "dtype_change": Program(lambda: calls(straight, vector(), vector(dtype=torch.float64)), 2, 1, ("dtype",)),
    "shape_change": Program(lambda: calls(straight, vector(8), vector(9), vector(10)), 2, 1, ("dimension",)),
    "rank_change": Program(lambda: calls(straight, vector(), vector().reshape(2, 4)), 2, 1, ("rank",)),
    "global_change": Program(_global_change, 2, 1, ("global",)),
    "attribute_change": Program(_attribute_change, 2, 1, ("attribute",)),
    "grad_mode_change": Program(_grad_mode_change, 2, 1, ("mode",)),
    "module_counts_calls": Program(
        lambda: calls(CountsCalls(), vector(), vector(), vector()), 3, 2, ("attribute", "attribute")
    ),
}
