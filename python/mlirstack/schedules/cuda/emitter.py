"""The interface of kernel emitters, and the choice among them.

An emitter says whether it can write a kernel for a graph, with which parameters, and writes it.  Both answers come from the
same :class:`KernelGraph`, once over tensors (when dispatches are formed), once over memrefs (when kernels are mapped).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from mlirstack.bindings import ir
from mlirstack.schedules.cuda import tuned
from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.graph import KernelGraph
from mlirstack.schedules.cuda.kernel import SCHEDULE

Parameter = int | bool | str
Parameters = Mapping[str, Parameter]
GENERAL = "general"  # the schedule of what no emitter takes: parallel loops over a flat grid


class Emitter(Protocol):
    """One way to write kernels.  Stateless.

    An emitter may also have ``claim(operations, device)``, which gets first pick of the ops of a function: it returns groups
    that can run as a whole, each a list of ops in order, and may rewrite ops to that end.  With ``takes_extents`` it is
    given graphs with an extent, too (:mod:`mlirstack.schedules.cuda.bounds`).
    """

    name: str

    def choose(self, graph: KernelGraph, device: Device) -> Parameters | None:
        """Tuning parameters for this graph on this device, or None where the emitter cannot take it.

        What is returned is what the cost model finds best; every value is an int, a bool or a str.
        """

    def candidates(self, graph: KernelGraph, device: Device) -> list[Parameters]:
        """Sets of parameters worth timing, the chosen one first; all of them give right answers."""

    def emit(self, function: Any, graph: KernelGraph, parameters: Parameters, device: Device) -> None:
        """Write the kernel(s) of ``function`` (a func.func over memrefs, whose linalg ops ``graph`` describes).

        Adds gpu.modules before the function and launches before its return, through
        :class:`~mlirstack.schedules.cuda.kernel.Kernel`.
        The caller erases the linalg ops afterwards; temporaries that launches share are memref.alloc in the function.
        """


# In order of preference: the first that takes a graph gets it.
_EMITTERS = (
    "mlirstack.schedules.cuda.attention.attention:Attention",
    "mlirstack.schedules.cuda.convolution.convolution:Convolution",
    "mlirstack.schedules.cuda.wgmma.gemm_pair:PairedGemm",
    "mlirstack.schedules.cuda.wgmma.gemm_skinny:SkinnyGemm",
    "mlirstack.schedules.cuda.wgmma.gemm_wgmma:WgmmaGemm",
    "mlirstack.schedules.cuda.product.gemm_mma:MmaGemm",
    "mlirstack.schedules.cuda.product.gemm_fma:FmaGemm",
    "mlirstack.schedules.cuda.stream.rows:Rows",
    "mlirstack.schedules.cuda.stream.transpose:Transpose",
    "mlirstack.schedules.cuda.stream.elementwise:Elementwise",
)


# Those that are taken only where they are asked for by name.
_ON_REQUEST = ("mlirstack.schedules.cuda.product.transform_gemm:TransformGemm",)


@dataclass(frozen=True)
class Choice:
    """An emitter's name and its parameters."""

    name: str
    parameters: Parameters

    def attribute(self) -> Any:
        """As a dictionary attribute; the inverse of :func:`choice_of`."""
        entries = {key: _attribute(value) for key, value in self.parameters.items()}
        return ir.DictAttr.get({"name": ir.StringAttr.get(self.name), **entries})


def choose(graph: KernelGraph, device: Device) -> Choice | None:
    """What was measured to be fastest, else the first emitter that takes ``graph``; None where none does.

    Kernels are given tensors and sizes: a number that is read from a tensor, or is an argument, leaves the graph to the
    general mapping.
    """
    bounded = graph.bounded()
    if bounded is None or not all(node.is_closed for node in graph.structured()):
        return None
    measured = _measured(bounded, device) if bounded.extent is None else None
    if measured is not None:
        return measured
    for emitter in emitters():
        parameters = emitter.choose(bounded, device) if can_be_given(emitter, bounded) else None
        if parameters is not None:
            return Choice(emitter.name, parameters)
    return None


def can_be_given(emitter: Emitter, graph: KernelGraph) -> bool:
    """Is it a graph of known sizes, or an emitter of kernels that go as far as they are told at run time?"""
    return graph.extent is None or getattr(emitter, "takes_extents", False)


def candidates(graph: KernelGraph, device: Device) -> list[Choice]:
    """All choices worth timing, of every emitter that takes ``graph``; the one made without measurements first."""
    taking = [emitter for emitter in emitters() if emitter.choose(graph, device) is not None]
    return [Choice(emitter.name, parameters) for emitter in taking for parameters in emitter.candidates(graph, device)]


def _measured(graph: KernelGraph, device: Device) -> Choice | None:
    """The entry of the tuning table, where it is still one of the candidates (a table may be older than an emitter)."""
    entry = tuned.lookup(graph, device.arch)
    if entry is None:
        return None
    parameters = {key: value for key, value in entry.items() if key != "name"}
    for emitter in emitters():
        if emitter.name == entry["name"] and emitter.choose(graph, device) is not None:
            fits = any(dict(c) == parameters for c in emitter.candidates(graph, device))
            return Choice(emitter.name, parameters) if fits else None
    return None


def choice_of(function: Any) -> Choice:
    """What the schedule attribute of a kernel function says."""
    entries = {named.name: _parameter(named.attr) for named in ir.DictAttr(function.attributes[SCHEDULE])}
    return Choice(str(entries.pop("name")), entries)


def emitter_named(name: str) -> Emitter:
    """The emitter of a schedule name; KeyError if there is none."""
    return {emitter.name: emitter for emitter in (*emitters(), *_load(_ON_REQUEST))}[name]


def emitters() -> tuple[Emitter, ...]:
    """All emitters that are taken unasked, in order of preference."""
    return _load(_EMITTERS)


@cache
def _load(paths: tuple[str, ...]) -> tuple[Emitter, ...]:
    loaded = []
    for path in paths:
        module, _, name = path.partition(":")
        loaded.append(getattr(importlib.import_module(module), name)())
    return tuple(loaded)


def _attribute(value: Parameter) -> Any:
    if isinstance(value, bool):
        return ir.BoolAttr.get(value)
    if isinstance(value, int):
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
    return ir.StringAttr.get(value)


def _parameter(attribute: Any) -> Parameter:
    if isinstance(attribute, ir.BoolAttr):
        return bool(attribute.value)
    if isinstance(attribute, ir.IntegerAttr):
        return int(attribute.value)
    return str(ir.StringAttr(attribute).value)
