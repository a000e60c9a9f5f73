"""The graph as kernels: which ops run together, and which emitter writes the kernel for them.

Takes linalg on tensors, leaves kernel functions in destination-passing style, each marked with its class
(``mlirstack.kernel``) and its schedule (``mlirstack.schedule``).  A group that no emitter takes is made smaller until one
does; what none takes at all is mapped by the general rules of :mod:`mlirstack.passes.cuda.general`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlirstack.bindings import ir
from mlirstack.passes import abi, functions
from mlirstack.passes.cuda.work import set_work, work_of
from mlirstack.passes.grouping import Group, Policy, class_of_group, dependences, group_operations, order_with
from mlirstack.passes.outline import outline_groups
from mlirstack.passes.regions import tensor_type
from mlirstack.passes.sizes import mark_most, most_of
from mlirstack.pipeline.step import PythonPass
from mlirstack.schedules.cuda.device import DEFAULT_ARCH, Device, device_of
from mlirstack.schedules.cuda.emitter import GENERAL, Choice, choose, emitter_named, emitters
from mlirstack.schedules.cuda.graph import KernelGraph
from mlirstack.schedules.cuda.kernel import SCHEDULE


@dataclass(frozen=True)
class FormDispatches(PythonPass):
    """Before: ``@main`` and ``@prepare`` hold linalg ops on tensors, slices and loops.  After: they call kernel functions,
    allocate, and take views; every kernel says which emitter writes it for ``arch`` and with which parameters.

    ``prefer`` names an emitter that gets whatever it takes.  With ``partial``, another compiler lowers the rest: ops that no
    emitter takes, and those of ``@prepare``, stay as they are; ``clusters``: can its run time launch clusters of blocks?
    """

    name = "mlirstack-form-dispatches"
    arch: str = DEFAULT_ARCH
    prefer: str = ""
    partial: bool = False
    clusters: bool = True

    def apply(self, module: Any) -> None:
        device = device_of(self.arch)
        counts: Counter[str] = Counter()
        entries = [entry for entry in functions.entry_points(module) if len(entry.regions[0].blocks) == 1]
        if self.partial:
            # Another run time makes no tensor maps, and what the device makes are those over tiles.
            device = replace(device, image_maps=False, clusters=self.clusters)
            entries = [entry for entry in entries if functions.name_of(entry) != abi.PREPARE]
        choosers = _choosers(device, self.prefer)
        # All claims first: what @main needs of @prepare can be seen only while that still holds ops, not kernels.
        for entry, claimed in [(entry, _claims(entry, device)) for entry in entries]:
            groups = group_operations(_body(entry), claimed, _POLICY)
            chosen = [part for group in groups for part in _parts(group, choosers)]
            if self.partial:
                chosen = [(Group(None, part.ops) if choice == _GENERAL else part, choice) for part, choice in chosen]
            functions_made = outline_groups(entry, [group for group, _ in chosen], counts, pull_slices=False)
            _note_sizes(entry, {functions.name_of(kernel): kernel for kernel in functions_made if kernel is not None})
            for kernel, (_, choice) in zip(functions_made, chosen, strict=True):
                if kernel is not None:
                    kernel.attributes[SCHEDULE] = choice.attribute()
                    if choice.name == self.prefer:  # the stages that follow leave nothing that it could be read from
                        set_work(kernel, *work_of(KernelGraph.of(kernel).structured()))


_GENERAL = Choice(GENERAL, {})
_POLICY = Policy(several_results=True, any_scalar=True, any_size=True)


def _body(entry: Any) -> list[Any]:
    return [op.operation for op in list(entry.regions[0].blocks[0].operations)[:-1]]


def _note_sizes(entry: Any, kernels: Mapping[str, Any]) -> None:
    """Tell the functions of kernels (by name) the most that varying sizes of their arguments can be."""
    for call in [op for op in _body(entry) if op.name == "func.call"]:
        kernel = kernels.get(ir.FlatSymbolRefAttr(call.attributes["callee"]).value)
        shapes = {
            position: [most_of(value, axis) for axis in range(kind.rank)]
            for position, value in enumerate(call.operands)
            if (kind := tensor_type(value)) is not None and not kind.has_static_shape
        }
        if kernel is not None and shapes:
            mark_most(kernel, shapes)


def _claims(entry: Any, device: Device) -> list[Group]:
    """Groups that emitters find themselves, in order of preference; each may rewrite what it takes.

    Such emitters have a ``kernel_class``, or are named like the class of kernels that they write.
    """
    claimed: list[Group] = []
    for emitter in emitters():
        claim = getattr(emitter, "claim", None)
        if claim is not None:
            taken = {op for group in claimed for op in group.ops}
            found = claim([op for op in _body(entry) if op not in taken], device)
            groups = [Group(getattr(emitter, "kernel_class", emitter.name), ops) for ops in found]
            claimed = _compatible(dependences(_body(entry)), claimed, groups)
    return claimed


def _compatible(needs: dict[Any, set[Any]], claimed: list[Group], found: list[Group]) -> list[Group]:
    """``claimed`` and those of ``found`` that can all run as a whole: two groups that need each other cannot both be had."""
    if order_with(needs, [*claimed, *found]) is not None:
        return [*claimed, *found]
    kept = list(claimed)
    for group in found:
        if order_with(needs, [*kept, group]) is not None:
            kept.append(group)
    return kept


Chooser = Callable[[KernelGraph], Choice | None]


def _choosers(device: Device, prefer: str) -> tuple[Chooser, ...]:
    """Who is asked in turn: the preferred emitter, then all."""

    def preferred(graph: KernelGraph) -> Choice | None:
        parameters = emitter_named(prefer).choose(graph, device)
        return None if parameters is None else Choice(prefer, parameters)

    def best(graph: KernelGraph) -> Choice | None:
        return choose(graph, device)

    return (preferred, best) if prefer else (best,)


def _parts(group: Group, choosers: Sequence[Chooser]) -> Iterator[tuple[Group, Choice]]:
    """The group, split until each part has a choice, in an order in which they can run."""
    if group.kind is None or _moves_slices(group):
        yield group, _GENERAL
        return
    rest = group.ops
    while rest:
        ops, choice = _longest_taken(rest, choosers)
        kind = group.kind if len(ops) == len(group.ops) else class_of_group(ops, _POLICY)
        yield Group(kind, ops), choice
        rest = rest[len(ops) :]


def _moves_slices(group: Group) -> bool:
    """Is it a tensor that is written slice by slice?"""
    return all(op.name == "tensor.insert_slice" for op in group.ops)


def _longest_taken(ops: Sequence[Any], choosers: Sequence[Chooser]) -> tuple[list[Any], Choice]:
    """The longest run of ``ops`` from the first one that an emitter takes, else the first op for the general mapping."""
    for chooser in choosers:
        for count in range(len(ops), 0, -1):
            part = list(ops[:count])
            choice = chooser(KernelGraph(part))
            if choice is not None:
                return part, choice
    return [ops[0]], _GENERAL
