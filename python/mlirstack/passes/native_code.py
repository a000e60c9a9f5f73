"""LLVM IR text to a relocatable object, and the object to assembly text.

llvmlite's LLVM does both ends of it: what is compiled is exactly the text of the stage before, and what is disassembled is
exactly the object that is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mlirstack.errors import BundleError, MissingDependencyError, StageError
from mlirstack.passes.elf import ElfObject, Relocation, Symbol
from mlirstack.passes.runtime_libraries import missing
from mlirstack.pipeline.step import Translation


@dataclass(frozen=True)
class ObjectCode:
    """An object file, and the LLVM IR it was made from (empty where it was read from disk)."""

    data: bytes
    llvm_ir: str = field(default="", repr=False)


@dataclass(frozen=True)
class Disassembly:
    """The assembly listing of an object, and the object."""

    text: str
    code: ObjectCode = field(repr=False)


@dataclass(frozen=True)
class Processor:
    """Name and features of a processor, as LLVM spells them (``+avx2,-avx512f``)."""

    name: str
    features: str


def host_cpu() -> Processor:
    """What LLVM finds this machine to be."""
    import llvmlite.binding as llvm

    return Processor(llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())


@dataclass(frozen=True)
class CompileObject(Translation):
    """Before: LLVM IR text.  After: an :class:`ObjectCode` for this machine's processor, all of whose external symbols
    exist in :mod:`mlirstack.passes.runtime_libraries`.

    ``opt_level`` is LLVM's, 0 to 3.  ``cpu`` is LLVM's name of another processor ("host": this machine's).
    ``freestanding``: the object is linked with no library, and may want no symbol at all.
    """

    name = "mlirstack-compile-object"
    opt_level: int = 2
    cpu: str = "host"
    freestanding: bool = False

    def translate(self, payload: str) -> ObjectCode:
        data = _emit(payload, self.opt_level, host_cpu() if self.cpu == "host" else Processor(self.cpu, ""))
        wanted = ElfObject.parse(data).undefined()
        absent = wanted if self.freestanding else missing(wanted)
        if absent:
            raise StageError(
                f"no library has the symbol(s) {', '.join(absent)}", stage="object", hint="see 'mlirstack doctor'"
            )
        return ObjectCode(data, payload)


@dataclass(frozen=True)
class Disassemble(Translation):
    """Before: an object.  After: its :class:`Disassembly`: Intel syntax, one label per function, calls and constants named
    by their relocations."""

    name = "mlirstack-disassemble"

    def translate(self, payload: ObjectCode | bytes) -> Disassembly:
        code = payload if isinstance(payload, ObjectCode) else ObjectCode(payload)
        return Disassembly(assembly_text(code.data), code)


def _emit(text: str, opt_level: int, cpu: Processor) -> bytes:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise StageError(f"LLVM does not accept the IR: {str(error).strip()}", stage="object") from None
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu.name, features=cpu.features, opt=opt_level, reloc="pic", codemodel="default"
    )
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    # What a higher level adds was done before, on tensors and loops: over the zoo and the models of benchmarks it makes
    # nothing quicker, and takes a fifth longer.
    options = llvm.create_pipeline_tuning_options(speed_level=1 if opt_level == 2 else opt_level)
    options.loop_vectorization = options.slp_vectorization = opt_level >= 2
    # Schedules unroll what is worth it. LLVM's own unrolling of constant trip counts made ResNet-18's object seven times
    # larger and five times slower to compile, and not faster to run.
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    passes = builder.getModulePassManager()
    passes.run(module, builder)
    return machine.emit_object(module)


# -------------------------------------------------------------------------------------------------------------- listing


def assembly_text(data: bytes) -> str:
    """Listing of all functions of an x86-64 object; :class:`MissingDependencyError` without capstone."""
    try:
        import capstone
    except ModuleNotFoundError:
        raise MissingDependencyError("the disassembler capstone is not installed", hint="pip install capstone") from None
    try:
        elf = ElfObject.parse(data)
    except BundleError as error:
        raise StageError(error.message, stage="asm") from None
    engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    lines: list[str] = []
    functions = elf.functions()
    relocations = {section: elf.relocations(section) for section in {function.section for function in functions}}
    for function in functions:
        code = elf.section_bytes(function.section)[function.value : function.value + function.size]
        decoded = [(at, size, f"{name} {operands}".rstrip()) for at, size, name, operands in engine.disasm_lite(code, 0)]
        lines += [f"{function.name}:", *_listing(decoded, relocations[function.section], function), ""]
    return "\n".join(lines)


def _listing(decoded: list[tuple[int, int, str]], relocations: dict[int, Relocation], function: Symbol) -> list[str]:
    lines = []
    for at, size, text in decoded:
        bytes_of = range(function.value + at, function.value + at + size)
        hit = next((relocations[offset] for offset in bytes_of if offset in relocations), None)
        comment = ""
        if hit is not None:
            # A PC-relative field is relative to its end: four bytes more than the addend says.
            offset = hit.addend + 4
            comment = f"    ; {hit.symbol}" + (f"{offset:+#x}" if offset else "")
        lines.append(f"  {at:6x}: {text}{comment}")
    return lines
