"""``mlirstack-run``: compile a module in the LLVM dialect for this machine, call one function, print what it returns.

What lit tests and the dialect samples check numbers with: mlir-runner for the pip-installed bindings.  The function takes
no arguments; a memref result needs ``llvm.emit_c_interface`` on it.
"""

from __future__ import annotations

import ctypes
import re
import sys
from typing import Any

from mlirstack.opt.entry import run_tool
from mlirstack.opt.flags import INPUT, PASSES, Flag, FlagError, Invocation, parse
from mlirstack.opt.source import Chunk, read_source

TOOL = "mlirstack-run"
_FLAGS: dict[str, Flag] = {
    "entry": Flag("text", "the function to call", "main"),
    "result": Flag("text", "type of its result: i1, i32, i64, index, f32, f64, or memref<2x3xf32>; none without it"),
    "O": Flag("uint", "how hard the code generator tries, 0 to 3"),
    "shared-libs": Flag("list", "libraries that the code calls into"),
    "allow-unregistered-dialect": INPUT["allow-unregistered-dialect"],
    "help": PASSES["help"],
}
_TYPES: dict[str, Any] = {
    "i1": ctypes.c_bool,
    "i8": ctypes.c_int8,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "index": ctypes.c_int64,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
}


def main(argv: list[str] | None = None) -> None:
    """Entry point of ``mlirstack-run``; exit status 0, or 1 where anything failed."""
    run_tool(_main, argv)


def _main(arguments: list[str]) -> int:
    from mlirstack.opt.isolation import run_isolated

    invocation = parse(arguments, TOOL, _FLAGS, {}, passes_are_flags=False)
    if invocation.on("help"):
        from mlirstack.opt.listing import flag_lines

        print("\n".join(["usage: mlirstack-run [FILE] [flags]", "", *flag_lines(_FLAGS)]))
        return 0
    source = read_source(invocation.input)
    ended = run_isolated(lambda: _run(Chunk(source, 1, 1, source.data), invocation))
    if ended.signal:
        sys.stderr.write(f"{source.name}: error: the program crashed with {ended.signal_name}\n")
    return ended.status


def _run(chunk: Chunk, invocation: Invocation) -> int:
    from mlirstack.bindings import core, execution_engine, lazy_context
    from mlirstack.opt.diagnostics import Printer, emit
    from mlirstack.opt.engine import parse as parse_chunk
    from mlirstack.opt.translate import untranslated

    context = lazy_context()
    handler = context.attach_diagnostic_handler(Printer(chunk.source))
    try:
        module = parse_chunk(chunk, invocation, context)
    except core()[0].MLIRError:
        return 1
    finally:
        handler.detach()
    left = untranslated(module.operation)
    if left:
        emit(f"{chunk.source.name}: error: '{left[0].name}' is not in the LLVM dialect: lower the module first\n")
        return 1
    level = invocation.number("O")
    entry, result = invocation.text("entry") or "main", invocation.text("result")
    with context:
        engine = execution_engine(module, 2 if level is None else level, invocation.names("shared-libs"))
        shaped = re.fullmatch(r"memref<((?:\d+x)*)(\w+)>", result or "")
        address = engine.raw_lookup(f"_mlir_ciface_{entry}" if shaped else entry)
        if not address:
            hint = " with llvm.emit_c_interface" if shaped else ""
            emit(f"{chunk.source.name}: error: no function '{entry}'{hint}, or it calls what no library has\n")
            return 1
        if shaped:
            print(_call_for_memref(address, [int(n) for n in shaped[1].split("x")[:-1]], _type(shaped[2])))
        elif result is None:
            _call(address)
        else:
            value = _type(result)()
            _call(address, value)
            print(_spell(value.value))
    return 0


def _call(address: int, *slots: Any) -> None:
    """Call through the engine's wrapper, which takes an array of pointers to arguments and then to the result."""
    pointers = (ctypes.c_void_p * max(len(slots), 1))(*(ctypes.addressof(slot) for slot in slots))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)(ctypes.addressof(pointers))


def _type(name: str) -> Any:
    if name not in _TYPES:
        raise FlagError(f"{TOOL}: unknown type '{name}' of a result; known: {', '.join(_TYPES)}, memref<…> of these")
    return _TYPES[name]


def _call_for_memref(address: int, shape: list[int], element: Any) -> str:
    """Call a function that returns a memref descriptor of ``shape`` and print its elements, row by row."""
    rank = len(shape)
    fields = [("base", ctypes.c_void_p), ("data", ctypes.c_void_p), ("offset", ctypes.c_int64)]
    dimensions = ctypes.c_int64 * max(rank, 1)
    if rank:
        fields += [("sizes", dimensions), ("strides", dimensions)]
    descriptor = type("Descriptor", (ctypes.Structure,), {"_fields_": fields})()
    _call(address, ctypes.c_void_p(ctypes.addressof(descriptor)))
    sizes = list(descriptor.sizes)[:rank] if rank else []
    if sizes != shape:
        raise FlagError(f"{TOOL}: the function returned a memref of shape {sizes}, not {shape}")
    strides = list(descriptor.strides)[:rank] if rank else []
    size = ctypes.sizeof(element)

    def spell(level: int, offset: int) -> str:
        if level == rank:
            return _spell(element.from_address(descriptor.data + size * offset).value)
        return "[" + ", ".join(spell(level + 1, offset + i * strides[level]) for i in range(shape[level])) + "]"

    return spell(0, descriptor.offset)


def _spell(value: object) -> str:
    """A number with up to six digits, as C's %g."""
    return f"{value:g}" if isinstance(value, float) else str(value).lower()
