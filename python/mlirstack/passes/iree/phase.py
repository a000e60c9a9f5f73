"""IREE's compilation phases as translations of a stage table: one run of its compiler each, resumable in between."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from mlirstack.bindings import ir
from mlirstack.errors import PipelineError
from mlirstack.ir.foreign import ForeignModule
from mlirstack.ir.text import clone_module, module_bytecode
from mlirstack.passes.iree.archive import PACKED
from mlirstack.passes.iree.arguments import (
    booleans_to_bytes,
    describe_device,
    name_arguments,
    name_written_arguments,
    parameters_to_globals,
)
from mlirstack.passes.iree.compiler import ENCODER_FILE, PHASES, CompilerRun, linked_files, run_compiler, source_of
from mlirstack.passes.iree.constants import hold_constant_addends
from mlirstack.passes.iree.destinations import own_written_values
from mlirstack.passes.iree.equal_truths import merge_equal_truths
from mlirstack.passes.iree.gathers import hold_gathered_factors, hold_gathered_values
from mlirstack.passes.iree.joins import hold_joined_elements
from mlirstack.passes.iree.late_checks import checks_to_results
from mlirstack.passes.iree.nans import hold_nans
from mlirstack.passes.iree.packed import PackedModule, strings_of
from mlirstack.passes.iree.readings import hold_shared_results
from mlirstack.passes.iree.results import pass_results
from mlirstack.passes.iree.scalars import hold_checked_scalars
from mlirstack.passes.iree.scatters import hold_constant_places, write_slices_in_order
from mlirstack.passes.iree.sorts import hold_sorted_values
from mlirstack.passes.iree.stretched import hold_stretched_factors
from mlirstack.passes.iree.targets import BACKENDS, CPU, architecture_flags, check_architecture, device_attribute
from mlirstack.passes.iree.transposes import hold_transposed_results
from mlirstack.passes.iree.truths import truths_as_bytes
from mlirstack.passes.sizes import forget_most
from mlirstack.pipeline.registry import nearest
from mlirstack.pipeline.step import Translation

TIMEOUT = 600  # seconds for one phase

VMFB = "vmfb"
OPT_LEVELS = ("O0", "O1", "O2", "O3")
UKERNELS = ("none", "default", "all")


@dataclass(frozen=True)
class IreePhase(Translation):
    """Before: linalg on tensors (phase "input"), or what the phase before has left.  After: IREE's IR behind ``phase``.

    ``phase`` is one of :data:`PHASES`, or "vmfb" for the final file.  ``backend`` and ``arch`` say what is compiled for
    (:mod:`mlirstack.passes.iree.targets`): for "llvm-cpu" ``arch`` is LLVM's name of a processor ("host": this one,
    "generic", "x86-64-v3"), for "cuda" it is "sm_80".  ``opt_level`` is O0 to O3; ``data_tiling`` packs operands of
    contractions on processors; ``ukernels`` are hand-written inner loops ("none", "default", "all"); ``prepack``: what
    depends on parameters alone leaves the module, and the final file comes with an encoder (:class:`PackedModule`);
    ``fenced``: ``@main`` takes the memory of its results from the caller and returns before the device has computed them;
    ``timeout`` is in seconds.
    """

    name: ClassVar[str] = "iree-phase"

    phase: str
    backend: str = CPU
    arch: str = "host"
    opt_level: str = "O3"
    data_tiling: bool = True
    ukernels: str = "default"
    prepack: bool = False
    fenced: bool = False
    timeout: int = TIMEOUT

    def __post_init__(self) -> None:
        known = [*PHASES, VMFB]
        if self.phase not in known:
            raise PipelineError(
                f"unknown IREE phase '{self.phase}'{nearest(self.phase, known)}", hint=f"phases: {', '.join(known)}"
            )
        if self.backend not in BACKENDS:
            names = [*BACKENDS]
            raise PipelineError(
                f"unknown IREE back end '{self.backend}'{nearest(self.backend, names)}",
                hint=f"back ends: {', '.join(names)}",
            )
        check_architecture(self.backend, self.arch)
        if self.opt_level not in OPT_LEVELS:
            raise PipelineError(f"unknown optimization level '{self.opt_level}'", hint=f"levels: {', '.join(OPT_LEVELS)}")
        if self.ukernels not in UKERNELS:
            raise PipelineError(f"unknown set of ukernels '{self.ukernels}'", hint=f"sets: {', '.join(UKERNELS)}")

    def translate(self, payload: Any) -> Any:
        """Run the phase: a :class:`ForeignModule`, or the bytes of a vmfb, with an encoder as a :class:`PackedModule`;
        :class:`StageError` as the compiler says."""
        if isinstance(payload, ir.Module):
            return run_compiler(self._run(), self._handed_over(payload))
        compiled = run_compiler(self._run(), source_of(payload))
        encoder = payload.aside if isinstance(payload, ForeignModule) else None
        if encoder is None:
            return compiled
        if isinstance(compiled, ForeignModule):
            return replace(compiled, aside=encoder)
        # Parameters are packed where the bundle is built, whatever machine it is for.
        here = IreePhase(VMFB, opt_level=self.opt_level, timeout=self.timeout)
        made = run_compiler(CompilerRun(None, None, here.flags(), here.timeout), encoder)
        assert isinstance(made, bytes)
        return PackedModule(compiled, made, strings_of(payload.text))

    def vmfb_of(self, module: ir.Module) -> bytes:
        """The final file of linalg on tensors by one run of the compiler: what all phases give, without what is between."""
        flags = replace(self, prepack=False).flags()
        vmfb = run_compiler(CompilerRun(None, None, flags, self.timeout), self._handed_over(module))
        assert isinstance(vmfb, bytes)
        return vmfb

    def _handed_over(self, module: ir.Module) -> bytes:
        """The module in the form that IREE's compiler takes."""
        module = clone_module(module)
        booleans_to_bytes(module)
        parameters_to_globals(module)
        forget_most(module)
        name_arguments(module)
        name_written_arguments(module)
        if self.fenced:
            checks_to_results(module)
            pass_results(module)
        merge_equal_truths(module)
        truths_as_bytes(module)
        own_written_values(module)
        hold_shared_results(module)
        hold_gathered_values(module)
        hold_constant_places(module)
        hold_gathered_factors(module)
        if self.backend == CPU:  # others pack no factors
            hold_stretched_factors(module)
        hold_joined_elements(module)
        hold_transposed_results(module)
        hold_constant_addends(module)
        hold_sorted_values(module)
        hold_checked_scalars(module)
        hold_nans(module)
        write_slices_in_order(module)
        describe_device(module, device_attribute(self.backend, self.arch))
        return module_bytecode(module)

    def command(self, source: str) -> str | None:
        """iree-compile's own command line; the first phase takes a module of ours, which mlirstack-opt hands over."""
        run = self._run()
        return shlex.join(["iree-compile", *run.arguments(source, "output")]) if run.after else None

    def files(self, source: bytes | str) -> Mapping[str, bytes]:
        """The object that the phase links."""
        return linked_files(source)

    def _run(self) -> CompilerRun:
        names = [*PHASES]
        position = len(names) if self.phase == VMFB else names.index(self.phase)
        after = names[position - 1] if position else None
        return CompilerRun(after, None if self.phase == VMFB else self.phase, self.flags(), self.timeout)

    def flags(self) -> tuple[str, ...]:
        """The flags that every phase is given: what is compiled for, and what keeps the numbers right."""
        return (
            *architecture_flags(self.backend, self.arch),
            f"--iree-opt-level={self.opt_level}",
            # IREE narrows float64 to float32 unless told otherwise.
            "--iree-input-demote-f64-to-f32=false",
            # Assertions guard dynamic shapes; O1 and up drop them.
            "--iree-opt-strip-assertions=false",
            # On from O2: fuses masked attention into a form that IREE's own code generation then refuses.
            "--iree-dispatch-creation-enable-aggressive-fusion=false",
            # Inlined bf16 constants are read back wrong.
            "--iree-flow-inline-constants-max-byte-length=0",
            *(("--iree-execution-model=async-external",) if self.fenced else ()),
            *(self._processor_flags() if self.backend == CPU else ()),
            *(self._encoder_flags() if self.prepack else ()),
        )

    def _encoder_flags(self) -> tuple[str, ...]:
        """Parameters that stay as they are keep their names and their file, which other targets read too."""
        return (
            f"--iree-parameter-encoder-output-file={ENCODER_FILE}",
            "--iree-parameter-encoder-mode=overlay",
            f"--iree-parameter-encoder-output-scope={PACKED}",
        )

    def _processor_flags(self) -> tuple[str, ...]:
        return (
            f"--iree-opt-data-tiling={'true' if self.data_tiling else 'false'}",
            f"--iree-llvmcpu-enable-ukernels={self.ukernels}",
            # Vector code for whole vectors, scalar code for the rest of a row.  IREE's own choice for odd sizes is scalar
            # code for all of it: softmax of 1023 rows of 1021 elements takes 2 ms with this, 163 ms without.
            "--iree-llvmcpu-vector-pproc-strategy=peel",
            # With it, tiles of f64 products are twice the size that a check of IREE's allows; they run as well (65x257x129:
            # 0.16 ms instead of 1.15, 64x256x512: 1.36 instead of 1.12).
            "--iree-llvmcpu-fail-on-large-vector=false",
            # Attention needs more scratch than the 32 KiB that are allowed by default.
            "--iree-llvmcpu-stack-allocation-limit=1048576",
        )
