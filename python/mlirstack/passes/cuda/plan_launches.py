"""A ``gpu.launch_func`` taken apart, and the tensor maps among its arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import ir
from mlirstack.passes import functions
from mlirstack.passes.cuda.plan import TensorMap


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


def tensor_map_of(attribute: Any) -> TensorMap:
    """Inverse of :meth:`mlirstack.schedules.cuda.kernel.TensorMapLayout.attribute`."""
    given = {named.name: named.attr for named in ir.DictAttr(attribute)}
    lists = {
        name: tuple(int(n) for n in ir.DenseI64ArrayAttr(given[name]))
        for name in ("sizes", "strides", "box", "element_strides", "lower", "upper")
    }
    return TensorMap(
        str(ir.StringAttr(given["element"]).value),
        lists["sizes"],
        lists["strides"],
        lists["box"],
        functions.integer(given["swizzle"]),
        lists["element_strides"],
        functions.integer(given["l2_promotion"]),
        lists["lower"],
        lists["upper"],
    )
