"""``mlirstack-translate``: out of MLIR, mlir-translate for the pip-installed bindings.

MLIR in the LLVM dialect becomes LLVM IR; LLVM IR becomes assembly of this machine, or PTX.
"""

from __future__ import annotations

import os
from typing import Any

from mlirstack.opt.entry import run_tool
from mlirstack.opt.flags import INPUT, PASSES, Flag, FlagError, Invocation, parse
from mlirstack.opt.source import Chunk, read_source, split
from mlirstack.opt.tool import user_message, write_output

TOOL = "mlirstack-translate"
_ON = Flag("bool", "", False, bare=True)
_KINDS = {
    "mlir-to-llvmir": _ON._replace(doc="MLIR in the LLVM dialect (with NVVM, OpenMP, …) to LLVM IR"),
    "llvmir-to-asm": _ON._replace(doc="LLVM IR to assembly of this machine"),
    "llvmir-to-ptx": _ON._replace(doc="LLVM IR to PTX"),
}
_FLAGS: dict[str, Flag] = {
    **_KINDS,
    "mcpu": Flag("text", "the processor, as LLVM names it (default: this machine's; sm_90 for PTX)"),
    "mattr": Flag("text", "its features, '+avx2,-fma', '+ptx83'"),
    "O": Flag("uint", "how hard the code generator tries, 0 to 3 (default: 2)"),
    **{
        name: INPUT[name]
        for name in (
            "o",
            "allow-unregistered-dialect",
            "no-implicit-module",
            "split-input-file",
            "output-split-marker",
            "verify-diagnostics",
        )
    },
    "help": PASSES["help"],
    "version": PASSES["version"],
}
_REFUSED = dict.fromkeys(
    ("import-llvm", "mlir-to-cpp", "serialize-spirv", "deserialize-spirv", "import-wasm", "export-smtlib"),
    "the bindings hold no such translation",
)
# Dialects whose ops MLIR translates to LLVM IR.  The bindings crash on any other op, so all are looked at first.
_TRANSLATED = frozenset(
    {
        "llvm",
        "builtin",
        "omp",
        "acc",
        "nvvm",
        "rocdl",
        "xevm",
        "gpu",
        "x86",
        "amx",
        "arm_neon",
        "arm_sme",
        "arm_sve",
        "vcix",
        "ptr",
    }
)


def main(argv: list[str] | None = None) -> None:
    """Entry point of ``mlirstack-translate``; exit status 0, or 1 where anything failed."""
    run_tool(_main, argv)


def _main(arguments: list[str]) -> int:
    invocation = parse(arguments, TOOL, _FLAGS, _REFUSED, passes_are_flags=False)
    if invocation.on("help"):
        print(_help())
        return 0
    if invocation.on("version"):
        from mlirstack.opt.listing import version_text

        print(version_text())
        return 0
    kinds = [kind for kind in _KINDS if invocation.on(kind)]
    if len(kinds) != 1:
        raise FlagError(f"{TOOL}: exactly one of {', '.join(f'--{kind}' for kind in _KINDS)} must be given")
    chunks, _ = split(read_source(invocation.input), invocation.text("split-input-file"))
    outputs: list[bytes] = []
    succeeded = True
    for chunk in chunks:
        fine, out = _isolated(kinds[0], chunk, invocation)
        succeeded &= fine
        outputs.append(out)
    marker = f"{invocation.text('output-split-marker') or '// -----'}\n".encode()
    write_output(invocation.text("o") or "-", marker.join(outputs), succeeded)
    return 0 if succeeded else 1


def _help() -> str:
    from mlirstack.opt.listing import flag_lines

    usage = "usage: mlirstack-translate [FILE] --mlir-to-llvmir|--llvmir-to-asm|--llvmir-to-ptx [flags]"
    example = "example:\n  mlirstack-opt in.mlir --convert-to-llvm | mlirstack-translate --mlir-to-llvmir"
    return "\n".join([usage, "", *flag_lines(_FLAGS), "", example])


def _isolated(kind: str, chunk: Chunk, invocation: Invocation) -> tuple[bool, bytes]:
    """Translate one chunk in a child, which sends the result through a pipe: failing translations crash the bindings."""
    import tempfile

    from mlirstack.opt.diagnostics import emit
    from mlirstack.opt.isolation import run_isolated

    with tempfile.TemporaryFile() as file:

        def work() -> int:
            try:
                fine, out = _translate(kind, chunk, invocation)
            except Exception as error:
                emit(user_message(error))
                return 1
            with os.fdopen(os.dup(file.fileno()), "wb") as sink:
                sink.write(out)
            return 0 if fine else 1

        ended = run_isolated(work)
        if ended.signal:
            emit(f"{chunk.source.name}: error: the translation crashed with {ended.signal_name}\n")
        file.seek(0)
        return not ended.signal and ended.status == 0, file.read()


def _translate(kind: str, chunk: Chunk, invocation: Invocation) -> tuple[bool, bytes]:
    if kind == "mlir-to-llvmir":
        return _to_llvm_ir(chunk, invocation)
    text = _assembly(chunk.text(), invocation, ptx=kind == "llvmir-to-ptx")
    return True, text.encode()


def _to_llvm_ir(chunk: Chunk, invocation: Invocation) -> tuple[bool, bytes]:
    from mlirstack.bindings import core, lazy_context, translate_to_llvm_ir
    from mlirstack.opt.diagnostics import Printer
    from mlirstack.opt.engine import parse as parse_chunk
    from mlirstack.opt.verify import Verifier

    level = invocation.text("verify-diagnostics")
    verifier = Verifier(chunk, level) if level is not None else None
    printer = Printer(chunk.source)
    translating = False

    def handle(diagnostic: Any) -> bool:
        (verifier or printer)(diagnostic)
        if translating and str(diagnostic.severity).endswith("ERROR"):
            os._exit(0 if verifier and verifier.finish() else 1)  # the bindings would crash on what comes back
        return True

    context = lazy_context()
    context.allow_unregistered_dialects = invocation.on("allow-unregistered-dialect")
    attached = context.attach_diagnostic_handler(handle)
    out = b""
    try:
        module = parse_chunk(chunk, invocation, context)
        translating = True
        for op in untranslated(module.operation):
            op.location.emit_error(
                "cannot be converted to LLVM IR: missing `LLVMTranslationDialectInterface` registration for dialect "
                f"for op: {op.name}"
            )
        out = translate_to_llvm_ir(module.operation).encode()
        fine = True
    except core()[0].MLIRError:
        fine = False
    attached.detach()
    return (verifier.finish() if verifier else fine), out


def untranslated(operation: Any) -> list[Any]:
    """The operations below ``operation`` that MLIR has no translation to LLVM IR for."""
    from mlirstack.bindings import core

    ir = core()[0]
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name.split(".", 1)[0] not in _TRANSLATED or op.name == "builtin.unrealized_conversion_cast":
            found.append(op)
        return ir.WalkResult.ADVANCE

    operation.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def _assembly(text: str, invocation: Invocation, *, ptx: bool) -> str:
    """Assembly of LLVM IR text by llvmlite's LLVM, which is older than the bindings': literals are respelled first."""
    from mlirstack.errors import StageError
    from mlirstack.passes.llvm_ir import classic_spelling

    level = 2 if invocation.number("O") is None else min(invocation.number("O") or 0, 3)
    classic = classic_spelling(text)
    if ptx:
        from mlirstack.passes.cuda.ptx import ptx_of
        from mlirstack.passes.cuda.toolkit import ptx_for

        arch = invocation.text("mcpu") or "sm_90"
        try:
            return ptx_of(classic, arch, invocation.text("mattr") or f"+ptx{ptx_for(arch)}", level)
        except StageError as error:
            raise FlagError(f"error: {error.message}") from None
    return _host_assembly(classic, invocation, level)


def _host_assembly(text: str, invocation: Invocation, level: int) -> str:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise FlagError(f"error: LLVM does not accept the IR: {str(error).strip()}") from None
    triple = llvm.get_default_triple()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=invocation.text("mcpu") or llvm.get_host_cpu_name(),
        features=invocation.text("mattr") or llvm.get_host_cpu_features().flatten(),
        opt=level,
        reloc="pic",
        codemodel="default",
    )
    module.triple = triple
    module.data_layout = str(machine.target_data)
    return str(machine.emit_assembly(module))


if __name__ == "__main__":
    main()
