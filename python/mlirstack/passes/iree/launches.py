"""Launches of kernels with other arguments: what the passes that change parameters share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import walk
from mlirstack.passes import functions
from mlirstack.passes.cuda.plan_launches import read_launch


def kernel_of(launch: Any) -> Any:
    """The ``gpu.func`` that a ``gpu.launch_func`` launches."""
    module_name, name = ir.SymbolRefAttr(launch.attributes["kernel"]).value
    top = launch
    while top.parent is not None:
        top = top.parent
    holder = next(op for op in top.regions[0].blocks[0].operations if _is_symbol(op, module_name))
    return next(op.operation for op in walk(holder) if op.name == "gpu.func" and functions.name_of(op) == name)


def set_parameters(kernel: Any) -> None:
    """Bring the type of a ``gpu.func`` up to date with the arguments of its block."""
    kinds = [argument.type for argument in kernel.regions[0].blocks[0].arguments]
    kernel.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(kinds, []))


def relaunch(launch: Any, arguments: Sequence[Any], shared: int | None = None) -> Any:
    """The same launch with other arguments for its kernel, in its place; ``shared``: bytes of dynamic shared memory, if
    they change."""
    operands = read_launch(launch)
    with ir.InsertionPoint(launch), launch.location:
        given = operands.shared
        if shared is not None:
            given = dialect("arith").ConstantOp(ir.IntegerType.get_signless(32), shared).result
        fresh = dialect("gpu").LaunchFuncOp(
            ir.SymbolRefAttr(launch.attributes["kernel"]).value, operands.grid, operands.block, list(arguments),
            dynamic_shared_memory_size=given,
        )  # fmt: skip
    launch.erase()
    return fresh.operation


def _is_symbol(op: Any, name: str) -> bool:
    return "sym_name" in op.attributes and functions.name_of(op) == name
