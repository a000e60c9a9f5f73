"""Kernels and program put together again: each call of a kernel function becomes the dispatches of its launch plan.

Takes the plan with its machine code, leaves what IREE's compiler is given: linalg on tensors, ``flow.dispatch`` where
regions were ours, and an executable with the code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir, new_context
from mlirstack.errors import StageError
from mlirstack.ir.elementwise import dynamic_sizes
from mlirstack.ir.ops import function, walk
from mlirstack.ir.ops import functions as functions_of
from mlirstack.ir.text import parse_module
from mlirstack.passes import abi, functions
from mlirstack.passes.cuda.fatbin import make_fatbin
from mlirstack.passes.cuda.plan import Expr, Launch, LaunchPlan
from mlirstack.passes.cuda.planned import PlannedCode
from mlirstack.passes.cuda.tf32_kernels import kernels_with_tf32
from mlirstack.passes.iree.archive import KERNELS
from mlirstack.passes.iree.arguments import reflect
from mlirstack.passes.iree.executables import (
    KernelExport,
    KernelObject,
    declare_executable,
    describe_objects,
    dispatch,
    locate_kernels,
)
from mlirstack.passes.iree.program import unpacked_program
from mlirstack.passes.iree.split import DESTINATIONS, NEW, OVERWRITTEN
from mlirstack.passes.restore_locations import RestoreLocations
from mlirstack.pipeline.step import Translation

EXECUTABLE = "mlirstack_kernels"  # symbol of the executable in the program
CUDA_TARGET = '#hal.executable.target<"cuda", "cuda-nvptx-fb">'
IMAGES = ("cubin", "ptx", "fatbin")


@dataclass(frozen=True)
class EmbedKernels(Translation):
    """Before: the :class:`PlannedCode` of kernel functions, and the program that calls them.  After: the program as a module
    for IREE, the kernels inside.

    ``image``: "cubin" is machine code, for devices of exactly this generation; "ptx" is compiled by the driver at load;
    "fatbin" holds both, and runs on later devices as well where the architecture has no suffix.
    """

    name = "mlirstack-iree-embed"
    image: str = "cubin"

    def translate(self, payload: PlannedCode) -> Any:
        if not isinstance(payload, PlannedCode):
            raise StageError("a launch plan alone holds no machine code", stage="program", hint="resume from stage 'cubin'")
        if not payload.plan.program:
            raise StageError("these kernels come without the program that calls them", stage="program")
        context = new_context()
        module = parse_module(unpacked_program(payload.plan.program), context)
        with context, ir.Location.unknown():
            main = function(module, abi.MAIN)
            declared = {functions.name_of(f): f for f in functions_of(module) if functions.is_declaration(f)}
            called = {name: KernelFunction(payload.plan, kernel) for name, kernel in declared.items()}
            exports = _exports(called, parameters_of(payload.ptx))
            for call in [op for op in walk(main) if op.name == "func.call"]:
                _replace(call, called[str(ir.FlatSymbolRefAttr(call.attributes["callee"]).value)], exports)
            for kernel in declared.values():
                kernel.operation.erase()
            objects = []
            if exports:
                image, file = _image(payload, self.image), f"kernels.{self.image}"
                tf32 = tuple(kernels_with_tf32(payload.ptx))
                objects.append(KernelObject(EXECUTABLE, CUDA_TARGET, file, image, tuple(exports.values()), tf32))
            for kernels in objects:
                declare_executable(module, kernels)
            locate_kernels(module)
            reflect(main, KERNELS, describe_objects(objects))
        RestoreLocations().apply(module)
        return module


def _image(code: PlannedCode, image: str) -> bytes:
    arch = code.plan.arch
    if image == "cubin":
        return code.cubin
    # The driver reads text up to a zero byte.
    return code.ptx.encode() + b"\0" if image == "ptx" else make_fatbin({arch: code.cubin}, {arch: code.ptx})


# ---------------------------------------------------------------------------------------------------------------- exports


class KernelFunction:
    """A kernel function as the program sees it, and its launches: ``results`` are the buffers that hold them, ``written``
    those and all others that its kernels may write.
    """

    def __init__(self, plan: LaunchPlan, declaration: Any) -> None:
        self.name = functions.name_of(declaration)
        found = plan.function(self.name)
        if found is None:
            raise StageError(f"the launch plan has no function '{self.name}'", stage="program")
        self.planned = found
        places = list(ir.DenseI64ArrayAttr(declaration.attributes[DESTINATIONS]))
        self.buffers = {b.index: number for number, b in enumerate(found.buffers) if b.kind == "input"}
        allocated = iter([result.buffer for result in found.results])
        self.results = [next(allocated) if place == NEW else self.buffers[place] for place in places]
        self.written = {number for number, buffer in enumerate(found.buffers) if buffer.kind != "input"}
        self.written |= {self.buffers[place] for place in ir.DenseI64ArrayAttr(declaration.attributes[OVERWRITTEN])}

    def launches(self) -> list[Launch]:
        """The steps; :class:`StageError` where one is no launch."""
        launches = [step for step in self.planned.steps if isinstance(step, Launch)]
        for step in self.planned.steps:
            if not isinstance(step, Launch):
                raise StageError(
                    f"IREE has no dispatch for a {step.kind} inside the kernel function '{self.name}'", stage="program"
                )
        return launches

    def export(self, launch: Launch) -> KernelExport:
        """How IREE launches the kernel."""
        buffers = [argument.buffer for argument in launch.arguments if argument.kind == "pointer"]
        writes = sum(buffer in self.written for buffer in buffers)
        numbers = len(launch.arguments) - len(buffers)
        return KernelExport(launch.kernel, len(buffers) - writes, writes, numbers, launch.block, launch.shared)


def _exports(called: Mapping[str, KernelFunction], taken: Mapping[str, list[int]]) -> dict[str, KernelExport]:
    """All kernels by name; :class:`StageError` where the code takes other parameters than are passed."""
    found: dict[str, KernelExport] = {}
    for kernel in called.values():
        for launch in kernel.launches():
            export = found[launch.kernel] = kernel.export(launch)
            passed = [8] * (export.reads + export.writes) + [4] * export.constants
            if taken.get(launch.kernel) != passed:
                raise StageError(
                    f"kernel '{launch.kernel}' takes parameters of {taken.get(launch.kernel)} bytes, IREE passes {passed}",
                    stage="program",
                )
    return found


_ENTRY = re.compile(r"\.entry (?P<name>[\w$]+)\((?P<parameters>[^)]*)\)")
_PARAMETER = re.compile(r"\.param (?:\.align \d+ )?\.(?P<kind>\w)(?P<bits>\d+)[^\n\[]*(?:\[(?P<count>\d+)\])?")


def parameters_of(ptx: str) -> dict[str, list[int]]:
    """Sizes in bytes of the parameters of each kernel."""
    return {
        entry["name"]: [int(p["bits"]) // 8 * int(p["count"] or 1) for p in _PARAMETER.finditer(entry["parameters"])]
        for entry in _ENTRY.finditer(ptx)
    }


# ------------------------------------------------------------------------------------------------------------- dispatches


def _replace(call: Any, kernel: KernelFunction, exports: Mapping[str, KernelExport]) -> None:
    with ir.InsertionPoint(call), call.location:
        memory = _Memory(call, kernel)
        for step in kernel.launches():
            memory.launch(step, exports[step.kernel])
        for result, buffer in zip(call.results, kernel.results, strict=True):
            result.replace_all_uses_with(memory.contents(buffer))
    call.erase()


class _Memory:
    """The buffers of one call of a kernel function as tensors: what each holds after the launches so far.

    A buffer without contents (None) is new memory for the dispatch that first writes it.
    """

    def __init__(self, call: Any, kernel: KernelFunction) -> None:
        self.operands = list(call.operands)
        self.planned = kernel.planned
        self.types = {buffer: self.operands[argument].type for argument, buffer in kernel.buffers.items()}
        self.types |= dict(zip(kernel.results, [result.type for result in call.results], strict=True))
        self.held: dict[int, Any] = {}
        for argument, buffer in kernel.buffers.items():
            value = self.operands[argument]
            self.held[buffer] = None if buffer in kernel.written and _is_empty(value) else value

    def contents(self, buffer: int) -> Any:
        """What ``buffer`` holds; of new memory, anything."""
        if self.held.get(buffer) is None:
            self.held[buffer] = dialect("tensor").EmptyOp.build_generic([self._type(buffer)], self._sizes(buffer)).result
        return self.held[buffer]

    def launch(self, step: Launch, export: KernelExport) -> None:
        """One dispatch."""
        pointers = [a for a in step.arguments if a.kind == "pointer"]
        if any(a.offset != 0 for a in pointers):
            raise StageError(f"kernel '{step.kernel}' takes places inside of buffers", stage="program")
        buffers = [a.buffer for a in pointers]
        read, written = buffers[: export.reads], buffers[export.reads :]
        # Dispatches return what they write in place first.
        in_place = max((n + 1 for n, buffer in enumerate(written) if self.held.get(buffer) is not None), default=0)
        results = dispatch(
            EXECUTABLE,
            export,
            [self._number(n) for n in step.grid],
            [self._word(a.kind, a.value) for a in step.arguments if a.kind != "pointer"],
            [self.contents(buffer) for buffer in read],
            [self.contents(buffer) for buffer in written[:in_place]],
            [self._type(buffer) for buffer in written],
            [size for buffer in written for size in self._sizes(buffer)],
        )
        self.held.update(zip(written, results, strict=True))

    def _type(self, buffer: int) -> Any:
        described = self.planned.buffers[buffer]
        if buffer in self.types:
            return self.types[buffer]
        if described.kind != "temporary":
            raise StageError(f"kernel function '{self.planned.name}' has a {described.kind}", stage="program")
        size = described.bytes if isinstance(described.bytes, int) else ir.ShapedType.get_dynamic_size()
        return ir.RankedTensorType.get([size], ir.IntegerType.get_signless(8))

    def _sizes(self, buffer: int) -> list[Any]:
        described = self.planned.buffers[buffer]
        if described.kind == "input":
            return dynamic_sizes(self.operands[described.index])
        return [] if isinstance(described.bytes, int) else [self._number(described.bytes)]

    # --------------------------------------------------------------------------------------------------------- numbers

    def _word(self, kind: str, value: Expr | float) -> Any:
        """A 32-bit number for a kernel."""
        arith, i32 = dialect("arith"), ir.IntegerType.get_signless(32)
        if kind == "f32":
            if isinstance(value, list):
                return arith.BitcastOp(i32, self.operands[value[1]]).result
            return arith.BitcastOp(i32, arith.ConstantOp(ir.F32Type.get(), float(value)).result).result
        return arith.IndexCastOp(i32, self._number(value)).result  # type: ignore[arg-type]

    def _number(self, expr: Expr) -> Any:
        """An expression over sizes and scalar arguments, as a value of type index."""
        arith, index = dialect("arith"), ir.IndexType.get()
        if not isinstance(expr, list):
            return arith.ConstantOp(index, expr).result
        head, *rest = expr
        if head == "dim":
            axis = arith.ConstantOp(index, rest[1]).result
            return dialect("tensor").DimOp(self.operands[rest[0]], axis).result
        if head == "scalar":
            scalar = self.operands[rest[0]]
            return scalar if isinstance(scalar.type, ir.IndexType) else arith.IndexCastOp(index, scalar).result
        if head not in _OPERATIONS:
            raise StageError(f"IREE's host program cannot compute '{head}' for a launch", stage="program")
        values = [self._number(e) for e in rest]
        return ir.Operation.create(f"arith.{_OPERATIONS[head]}", results=[index], operands=values).result


_OPERATIONS = {
    "add": "addi", "sub": "subi", "mul": "muli", "floordiv": "floordivsi", "ceildiv": "ceildivsi", "mod": "remsi",
    "min": "minsi", "max": "maxsi",
}  # fmt: skip


def _is_empty(value: Any) -> bool:
    producer = functions.defining_op(value)
    return producer is not None and producer.name == "tensor.empty"
