"""IREE's ops around kernels that are compiled already: the executable that holds them, and the dispatches that call them.

Nothing here knows what a kernel computes or for which device it was compiled: a :class:`KernelObject` is bytes with named
exports, and a target says which of IREE's executable targets may take it.  IREE's dialects are unknown to these bindings:
the ops are built as unregistered ones, and IREE's compiler reads them from bytecode as its own.  The spelling of every
attribute is that of the pinned version, and stands here and nowhere else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.elementwise import dynamic_sizes
from mlirstack.ir.locations import fused_location
from mlirstack.ir.ops import walk
from mlirstack.passes.iree.archive import LINKED_OBJECT
from mlirstack.passes.iree.code import describe_code


@dataclass(frozen=True)
class KernelExport:
    """One kernel of an object: its symbol, and how it is launched.

    It takes a pointer for each binding, ``reads`` buffers that it only reads, then ``writes`` buffers, then ``constants``
    32-bit numbers.  ``threads`` a workgroup (none on processors), ``shared_bytes`` of dynamic workgroup memory.
    """

    name: str
    reads: int
    writes: int
    constants: int
    threads: tuple[int, ...] = ()
    shared_bytes: int = 0

    def layout(self) -> str:
        """IREE's attribute of what is passed."""
        read, written = "#hal.pipeline.binding<storage_buffer, ReadOnly>", "#hal.pipeline.binding<storage_buffer>"
        bindings = ", ".join([read] * self.reads + [written] * self.writes)
        constants = f"constants = {self.constants}, " if self.constants else ""
        return f"#hal.pipeline.layout<{constants}bindings = [{bindings}]>"


@dataclass(frozen=True)
class KernelObject:
    """Compiled kernels.  ``target`` is IREE's attribute of what may run them, ``file`` a name for people, ``tf32`` are the
    kernels that multiply f32 as TF32.

    ``dispatches``: text of a module whose functions, named as the exports, are what IREE dispatches; it links the object to
    them, which has to lie beside its compiler's input.  Empty: IREE takes the object as it is, and its symbols are the
    exports.
    """

    symbol: str
    target: str
    file: str
    data: bytes = field(repr=False)
    exports: tuple[KernelExport, ...] = ()
    tf32: tuple[str, ...] = ()
    dispatches: str = ""

    def describe(self) -> dict[str, Any]:
        """What is to be found again in the compiled module, as plain data."""
        whole = {"bytes": len(self.data), "head": self.data[:32].hex(), "sha256": hashlib.sha256(self.data).hexdigest()}
        return {
            "file": self.file,
            **({"code": describe_code(self.data)} if self.dispatches else whole),
            "tf32": list(self.tf32),
            "exports": {e.name: {"bindings": e.reads + e.writes, "constants": e.constants} for e in self.exports},
        }


def describe_objects(objects: Sequence[KernelObject]) -> str:
    """JSON of all objects, for the reflection of the program's entry point."""
    return json.dumps({"kernels": [o.describe() for o in objects]}, separators=(",", ":"))


def declare_executable(module: Any, kernels: KernelObject) -> None:
    """Put ``hal.executable.source @<symbol>`` with the object's bytes at the begin of ``module``."""
    index = ir.IndexType.get()
    contents = f'data = dense<"0x{kernels.data.hex().upper()}"> : vector<{len(kernels.data)}xi8>'
    entries = [f"#hal.executable.object<{{path = {json.dumps(kernels.file)}, {contents}}}>"]
    if kernels.dispatches:
        entries.append(f"#hal.executable.object<{{path = {json.dumps(LINKED_OBJECT)}}}>")
    with module.context, ir.Location.unknown():
        executable = ir.Operation.create(
            "hal.executable.source",
            attributes={
                "sym_name": ir.StringAttr.get(kernels.symbol),
                "sym_visibility": ir.StringAttr.get("private"),
                "objects": ir.Attribute.parse(f"#hal.executable.objects<{{{kernels.target} = [{', '.join(entries)}]}}>"),
            },
            regions=1,
            ip=ir.InsertionPoint.at_block_begin(module.body),
        )
        with ir.InsertionPoint(executable.regions[0].blocks.append()):
            for ordinal, export in enumerate(kernels.exports):
                op = ir.Operation.create("hal.executable.export", attributes=_export(export, ordinal), regions=2)
                # Grids are computed where a dispatch stands; its workload is the grid.
                grid = op.regions[0].blocks.append(ir.Type.parse("!hal.device"), index, index, index)
                with ir.InsertionPoint(grid):
                    ir.Operation.create("hal.return", operands=list(grid.arguments)[1:])
            if kernels.dispatches:
                ir.Module.parse(kernels.dispatches).operation.clone()
            ir.Operation.create("hal.executable.source_end")


def locate_kernels(module: Any) -> None:
    """Give all that stands in executables the locations of the dispatches that it is for, each kernel those of its own."""
    dispatched: dict[str, list[Any]] = {}
    for op in walk(module):
        if op.name == "flow.dispatch":
            (entry,) = ir.ArrayAttr(op.attributes["entry_points"])
            dispatched.setdefault(ir.SymbolRefAttr(entry).value[-1], []).append(op.location)
    context = module.context
    everywhere = fused_location([place for places in dispatched.values() for place in places], context)
    for executable in [op.operation for op in module.body.operations if op.operation.name == "hal.executable.source"]:
        inside = [executable, *walk(executable)]
        for op in inside:
            op.location = everywhere
        for kernel in [op for op in inside if "sym_name" in op.attributes]:
            places = dispatched.get(ir.StringAttr(kernel.attributes["sym_name"]).value, [])
            for op in [kernel, *walk(kernel)] if places else ():
                op.location = fused_location(places, context)


def _export(export: KernelExport, ordinal: int) -> Mapping[str, Any]:
    index = ir.IndexType.get()
    size = (
        {"workgroup_size": ir.ArrayAttr.get([ir.IntegerAttr.get(index, n) for n in export.threads])}
        if export.threads
        else {}
    )
    shared = {"workgroup_local_memory": ir.IntegerAttr.get(index, export.shared_bytes)} if export.shared_bytes else {}
    return {
        "sym_name": ir.StringAttr.get(export.name),
        "sym_visibility": ir.StringAttr.get("public"),
        "ordinal": ir.IntegerAttr.get(index, ordinal),
        "layout": ir.Attribute.parse(export.layout()),
        **size,
        **shared,
    }


def dispatch(
    symbol: str,
    export: KernelExport,
    grid: Sequence[Any],
    constants: Sequence[Any],
    read: Sequence[Any],
    overwritten: Sequence[Any],
    results: Sequence[Any],
    result_sizes: Sequence[Any] = (),
) -> list[Any]:
    """``flow.dispatch`` of an export at the insertion point; its results, one for each buffer that is written.

    ``grid``: three values of type index.  ``constants``: values of type i32.  The first results take the places of the
    tensors ``overwritten``, which the kernel may read; the others are new memory.  ``results`` are the types of all,
    ``result_sizes`` the values of their dynamic sizes.
    """
    index = ir.IndexType.get()
    tensors = [*read, *overwritten]
    sizes = [size for tensor in tensors for size in dynamic_sizes(tensor)]
    first = len(constants) + len(read)
    tied = [first + i if i < len(overwritten) else -1 for i in range(len(results))]
    attributes = {
        "entry_points": ir.ArrayAttr.get([ir.SymbolRefAttr.get([symbol, export.name])]),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get(
            [len(grid), len(constants) + len(tensors), len(sizes), len(result_sizes)]
        ),
        **({"tied_operands": ir.ArrayAttr.get([ir.IntegerAttr.get(index, i) for i in tied])} if overwritten else {}),
    }
    operands = [*grid, *constants, *tensors, *sizes, *result_sizes]
    return list(
        ir.Operation.create("flow.dispatch", results=list(results), operands=operands, attributes=attributes).results
    )


def written_operands(dispatch_op: Any) -> set[int]:
    """Numbers of the operands of a ``flow.dispatch`` that it writes in place."""
    if "tied_operands" not in dispatch_op.attributes:
        return set()
    workload, *_ = ir.DenseI32ArrayAttr(dispatch_op.attributes["operandSegmentSizes"])
    tied = [ir.IntegerAttr(entry).value for entry in ir.ArrayAttr(dispatch_op.attributes["tied_operands"])]
    return {workload + number for number in tied if number >= 0}
