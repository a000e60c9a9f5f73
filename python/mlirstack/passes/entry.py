"""The calling convention: numbering of arguments, its description, bare pointers, and the exported wrappers.

Comes in steps, because each fact is known at another level: which argument of the program an argument is (tensors), what
type each has and whether its address says it all (memrefs), and the wrapper that takes all of them through one pointer
(LLVM dialect).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.ops import function, walk
from mlirstack.ir.ops import functions as module_functions
from mlirstack.passes import abi, functions
from mlirstack.pipeline.step import PythonPass

C_INTERFACE = "llvm.emit_c_interface"
BARE_POINTERS = "llvm.bareptr"
_C_PREFIX = "_mlir_ciface_"


@dataclass(frozen=True)
class NumberArguments(PythonPass):
    """Before: @main as the front end left it.  After: each of its arguments carries its position, so that later passes may
    drop, add and reorder arguments."""

    name = "mlirstack-number-arguments"

    def apply(self, module: Any) -> None:
        main = function(module, abi.MAIN)
        attributes = functions.argument_attributes(main)
        for position, entry in enumerate(attributes):
            entry.setdefault(abi.ARGUMENT, functions.index_attribute(position))
        functions.set_argument_attributes(main, attributes)


@dataclass(frozen=True)
class ProtectArguments(PythonPass):
    """Before: tensors, about to be bufferized.  After: no argument of a public function may be written in place: they are
    the caller's tensors."""

    name = "mlirstack-protect-arguments"

    def apply(self, module: Any) -> None:
        for entry in functions.entry_points(module):
            signature = functions.type_of(entry)
            attributes = functions.argument_attributes(entry)
            for kind, given in zip(signature.inputs, attributes, strict=True):
                if isinstance(kind, ir.RankedTensorType):
                    given["bufferization.writable"] = ir.BoolAttr.get(False)
            functions.set_argument_attributes(entry, attributes)


@dataclass(frozen=True)
class DescribeEntries(PythonPass):
    """Before: bufferized, out-parameters in place.  After: every public function carries its :class:`abi.FunctionAbi` as
    text and asks for a C interface; one that carries it already is left alone."""

    name = "mlirstack-describe-entries"

    def apply(self, module: Any) -> None:
        for entry in functions.entry_points(module):
            if abi.ENTRY_ABI in entry.attributes:
                continue
            description = _describe(entry)
            entry.attributes[abi.ENTRY_ABI] = ir.StringAttr.get(description.text())
            entry.attributes[C_INTERFACE] = ir.UnitAttr.get()


@dataclass(frozen=True)
class BarePointers(PythonPass):
    """Before: functions of memrefs, about to become functions of the LLVM dialect.  After: one all of whose memrefs have a
    static shape and no layout is marked to take their addresses alone, not sizes and strides that its type tells; it
    returns nothing but at most one number."""

    name = "mlirstack-bare-pointers"

    def apply(self, module: Any) -> None:
        for f in module_functions(module):
            signature = functions.type_of(f)
            is_plain = len(signature.results) <= 1 and not any(isinstance(t, ir.ShapedType) for t in signature.results)
            if is_plain and all(map(_is_its_address, signature.inputs)) and not functions.is_declaration(f):
                f.attributes[BARE_POINTERS] = ir.UnitAttr.get()


@dataclass(frozen=True)
class ExportEntries(PythonPass):
    """Before: LLVM dialect; entry points have a C interface or take bare pointers.  After: ``mlirstack_<entry>(frame)`` for
    each entry point and the text ``mlirstack_abi`` are all that the module exports; kernels stay functions of their own and
    say that their buffers do not overlap."""

    name = "mlirstack-export-entries"

    def apply(self, module: Any) -> None:
        defined = [op for op in module.body.operations if op.operation.name == "llvm.func" and op.regions[0].blocks]
        described = {functions.name_of(f): f for f in defined if abi.ENTRY_ABI in f.attributes}
        messages = module.operation.attributes.get(abi.ASSERT_MESSAGES, [])
        entries = []
        for name, entry in described.items():
            if name.startswith(_C_PREFIX):
                continue
            known = abi.FunctionAbi.parse(ir.StringAttr(entry.attributes[abi.ENTRY_ABI]).value)
            entries.append(dataclasses.replace(known, checked=abi.CHECKED in entry.attributes))
            bare = BARE_POINTERS in entry.attributes
            _wrap(module, name, entry if bare else described[_C_PREFIX + name], bare=bare)
        internal = ir.Attribute.parse("#llvm.linkage<internal>")
        for f in defined:
            f.attributes["linkage"] = internal
            if KERNEL in f.attributes:
                seal_kernel(f)
        description = abi.ModuleAbi(tuple(entries), tuple(str(ir.StringAttr(m).value) for m in messages))
        _constant_text(module, abi.ABI_SYMBOL, description.text())


KERNEL = "mlirstack.kernel"  # function attribute: the class of an outlined kernel


def _describe(entry: Any) -> abi.FunctionAbi:
    signature = functions.type_of(entry)
    inputs: list[abi.ValueAbi] = []
    outs: list[abi.ValueAbi] = []
    given = functions.argument_attributes(entry)
    for position, kind in enumerate(signature.inputs):
        attributes = given[position]
        value = _value(kind)
        if abi.RESULT in attributes:
            outs.append(value)
        elif abi.PREPARED in attributes:
            index = functions.integer(attributes[abi.PREPARED])
            inputs.append(dataclasses.replace(value, source="prepared", index=index))
        else:
            # Programs that begin below linalg were never numbered, and have lost no argument.
            index = functions.integer(attributes[abi.ARGUMENT]) if abi.ARGUMENT in attributes else position
            inputs.append(dataclasses.replace(value, source="argument", index=index))
    returned = tuple(_value(t) for t in signature.results)
    order = _order(entry, outs, returned)
    return abi.FunctionAbi(functions.name_of(entry), tuple(inputs), tuple(outs), returned, order)


def _order(entry: Any, outs: list[abi.ValueAbi], returned: tuple[abi.ValueAbi, ...]) -> tuple[int, ...]:
    """Results in the program's order, which :class:`ResultsToArguments` has written down."""
    if abi.RESULT_IS_ARGUMENT not in entry.attributes:
        return tuple(range(len(outs) + len(returned)))
    is_argument = [bool(flag) for flag in ir.DenseBoolArrayAttr(entry.attributes[abi.RESULT_IS_ARGUMENT])]
    out, rest = iter(range(len(outs))), iter(range(len(outs), len(outs) + len(returned)))
    return tuple(next(out) if flag else next(rest) for flag in is_argument)


def _value(kind: Any) -> abi.ValueAbi:
    if isinstance(kind, ir.MemRefType):
        memref = ir.MemRefType(kind)
        dynamic = [memref.is_dynamic_dim(i) for i in range(memref.rank)]
        shape = tuple(None if d else memref.shape[i] for i, d in enumerate(dynamic))
        return abi.ValueAbi(str(memref.element_type), shape)
    return abi.ValueAbi(str(kind), None)


def _is_its_address(kind: Any) -> bool:
    """Is it a number, or a memref of which nothing but its address is not known?  One without elements is none to MLIR."""
    if not isinstance(kind, ir.MemRefType):
        return not isinstance(kind, ir.ShapedType)
    memref = ir.MemRefType(kind)
    is_dense = memref.has_static_shape and memref.affine_map == ir.AffineMap.get_identity(memref.rank)
    return bool(is_dense and 0 not in memref.shape)


def _wrap(module: Any, name: str, callee: Any, *, bare: bool) -> None:
    """``llvm.func @mlirstack_<name>(%frame)``: load each argument through the frame and call ``callee``, which takes a
    memref by the address of its descriptor (the C interface), or ``bare`` by that of its first element."""
    kind = ir.TypeAttr(callee.attributes["function_type"]).value
    arguments = [a.type for a in callee.regions[0].blocks[0].arguments]
    result = str(kind).rsplit("(", 1)[0].removeprefix("!llvm.func<").strip()
    lines = []
    for i, argument in enumerate(arguments):
        lines.append(f"  %s{i} = llvm.getelementptr %frame[{i}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr")
        lines.append(f"  %p{i} = llvm.load %s{i} : !llvm.ptr -> !llvm.ptr")
        if str(argument) != "!llvm.ptr":
            lines.append(f"  %v{i} = llvm.load %p{i} : !llvm.ptr -> {argument}")
        elif bare:  # the second word of the descriptor
            lines.append(f"  %a{i} = llvm.getelementptr %p{i}[1] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr")
            lines.append(f"  %v{i} = llvm.load %a{i} : !llvm.ptr -> !llvm.ptr")
    given = ", ".join(f"%p{i}" if str(a) == "!llvm.ptr" and not bare else f"%v{i}" for i, a in enumerate(arguments))
    types = ", ".join(str(a) for a in arguments)
    call = f"llvm.call @{functions.name_of(callee)}({given}) : ({types}) -> "
    if result == "void":
        lines.append(f"  {call}()")
    else:  # a lone scalar comes back in a register: stored through the slot after the arguments
        lines.append(f"  %r = {call}{result}")
        lines.append(f"  %s = llvm.getelementptr %frame[{len(arguments)}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr")
        lines.append("  %p = llvm.load %s : !llvm.ptr -> !llvm.ptr")
        lines.append(f"  llvm.store %r, %p : {result}, !llvm.ptr")
    body = "\n".join([*lines, "  llvm.return"])
    declaration = f"llvm.func @{functions.name_of(callee)}({types})" + (f" -> {result}" if result != "void" else "")
    wrapper = f"llvm.func @{abi.SYMBOL_PREFIX}{name}(%frame: !llvm.ptr) {{\n{body}\n}}"
    # Parsed beside a declaration, because the call must refer to something.
    parsed = ir.Module.parse(f"{declaration}\n{wrapper}")
    entry = parsed.body.operations[1].operation.detach_from_parent()
    module.body.append(entry)
    for op in (entry, *walk(entry)):
        op.location = callee.location


def seal_kernel(kernel: Any) -> None:
    """Keep a kernel (LLVM dialect) a function of its own, whose buffers do not overlap."""
    kernel.attributes["no_inline"] = ir.UnitAttr.get()
    arguments = kernel.regions[0].blocks[0].arguments
    attributes = [{"llvm.noalias": ir.UnitAttr.get()} if str(a.type) == "!llvm.ptr" else {} for a in arguments]
    functions.set_argument_attributes(kernel, attributes)


def _constant_text(module: Any, symbol: str, text: str) -> None:
    content = text.encode() + b"\0"
    escaped = "".join(f"\\{byte:02X}" if not 32 <= byte < 127 or byte in b'"\\' else chr(byte) for byte in content)
    kind = f"!llvm.array<{len(content)} x i8>"
    module.body.append(
        ir.Operation.parse(f'llvm.mlir.global external constant @{symbol}("{escaped}") {{addr_space = 0 : i32}} : {kind}')
    )
