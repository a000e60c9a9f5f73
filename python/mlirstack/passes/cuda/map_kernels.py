"""Kernel functions over memrefs become kernels: by the emitter that their schedule names, or by the general mapping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.kernels import KERNEL_ATTRIBUTE
from mlirstack.ir.ops import functions as functions_of
from mlirstack.ir.ops import walk
from mlirstack.passes.cuda.general import map_function
from mlirstack.passes.cuda.work import BYTES, FLOPS, set_work, work_of
from mlirstack.pipeline.step import PythonPass
from mlirstack.schedules.cuda.device import DEFAULT_ARCH, Device, device_of
from mlirstack.schedules.cuda.emitter import GENERAL, choice_of, emitter_named
from mlirstack.schedules.cuda.graph import KernelGraph
from mlirstack.schedules.cuda.kernel import SCHEDULE
from mlirstack.schedules.cuda.product.transform_gemm import TRANSFORM


@dataclass(frozen=True)
class MapKernels(PythonPass):
    """Before: functions marked ``mlirstack.kernel`` hold linalg ops, copies and loops over memrefs.  After: they hold
    allocations, views, index arithmetic and launches; their kernels stand in ``gpu.module``s, with blocks, threads and,
    where the work is known, ``mlirstack.bytes`` and ``mlirstack.flops``.
    """

    name = "mlirstack-map-kernels"
    arch: str = DEFAULT_ARCH

    def apply(self, module: Any) -> None:
        device = device_of(self.arch)
        for function in [f for f in functions_of(module) if KERNEL_ATTRIBUTE in f.attributes]:
            _map(function, device)


def _map(function: Any, device: Device) -> None:
    choice = choice_of(function)
    if choice.name == TRANSFORM:  # the stages after this one are for these
        return
    if choice.name == GENERAL:
        map_function(function)
        return
    graph = KernelGraph.of(function)
    work = work_of(graph.structured())
    graph = graph.bounded() or graph
    body = [op.operation for op in list(function.regions[0].blocks[0].operations)[:-1]]
    emitter_named(choice.name).emit(function, graph, choice.parameters, device)
    for op in reversed(body):
        if not any(True for result in op.results for _ in result.uses):
            op.erase()
    _describe(function, *work)


def _describe(function: Any, moved: int | None, flops: int | None) -> None:
    """The work of the function, on its last kernel: what launches before it prepare is part of the same work."""
    launches = [op for op in walk(function) if op.name == "gpu.launch_func"]
    if launches:
        kernel = _kernel_of(launches[-1], function.parent)
        if BYTES not in kernel.attributes:
            set_work(kernel, moved, flops)


@dataclass(frozen=True)
class LabelKernels(PythonPass):
    """Before: kernels were outlined of functions that say their schedule, and what work they are.  After: the kernels say so
    too."""

    name = "mlirstack-label-kernels"

    def apply(self, module: Any) -> None:
        for function in [f for f in functions_of(module) if SCHEDULE in f.attributes]:
            for launch in [op for op in walk(function) if op.name == "gpu.launch_func"]:
                kernel = _kernel_of(launch, module)
                if SCHEDULE not in kernel.attributes:
                    kernel.attributes[SCHEDULE] = ir.StringAttr.get(choice_of(function).name)
                    for name in (BYTES, FLOPS):
                        if name in function.attributes:
                            kernel.attributes[name] = function.attributes[name]


def _kernel_of(launch: Any, module: Any) -> Any:
    """The gpu.func that is launched."""
    reference = ir.SymbolRefAttr(launch.attributes["kernel"]).value
    return next(op for op in walk(module) if op.name == "gpu.func" and _name(op) == reference[-1])


def _name(op: Any) -> str:
    return str(ir.StringAttr(op.attributes["sym_name"]).value)
