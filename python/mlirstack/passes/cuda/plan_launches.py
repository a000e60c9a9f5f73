"""A ``gpu.launch_func`` taken apart, and the tensor maps among its arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import ir
from mlirstack.passes.cuda.plan import Expr, TensorMap
from mlirstack.passes.cuda.plan_views import View, fold
from mlirstack.schedules.cuda.kernel import TensorMapLayout


@dataclass(frozen=True)
class LaunchOperands:
    """MLIR values of a launch: ``grid`` and ``block`` have three each, ``shared`` may be missing."""

    kernel: str
    grid: tuple[Any, Any, Any]
    block: tuple[Any, Any, Any]
    shared: Any | None
    arguments: tuple[Any, ...]


def read_launch(op: Any) -> LaunchOperands:
    """The operands of a ``gpu.launch_func``."""
    launch = op.opview
    return LaunchOperands(
        ir.SymbolRefAttr(op.attributes["kernel"]).value[-1],
        (launch.gridSizeX, launch.gridSizeY, launch.gridSizeZ),
        (launch.blockSizeX, launch.blockSizeY, launch.blockSizeZ),
        launch.dynamicSharedMemorySize,
        tuple(launch.kernelOperands),
    )


def tensor_map_of(attribute: Any, view: View) -> TensorMap:
    """What :meth:`mlirstack.schedules.cuda.kernel.TensorMapLayout.attribute` says of the memory of ``view``."""
    layout = TensorMapLayout.of(attribute)
    sizes: list[Expr] = list(layout.sizes)
    if layout.varying:
        axis, dimension, factor = layout.varying
        sizes[axis] = fold("mul", view.sizes[dimension], factor)
    return TensorMap(
        layout.element, tuple(sizes), layout.strides, layout.box, layout.swizzle, layout.element_strides,
        layout.l2_promotion, layout.lower, layout.upper,
    )  # fmt: skip
