"""The names of all Python steps that mlirstack brings: passes, schedules, translations.

A table of strings: listing it imports nothing.  Whoever reads pipeline text calls :func:`register_steps` first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from mlirstack.pipeline.table import register_step

STEPS: dict[str, str] = {
    "iree-phase": "mlirstack.passes.iree.phase:IreePhase",
    "mlirstack-allow-tf32": "mlirstack.passes.cuda.allow_tf32:AllowTf32",
    "mlirstack-assemble-cubin": "mlirstack.passes.cuda.cubin:AssembleCubin",
    "mlirstack-asserts-to-errors": "mlirstack.passes.asserts:AssertsToErrors",
    "mlirstack-bare-pointers": "mlirstack.passes.entry:BarePointers",
    "mlirstack-bfloat-bits": "mlirstack.passes.bfloat_bits:BfloatBits",
    "mlirstack-boolean-bytes": "mlirstack.passes.cuda.boolean_bytes:BooleanBytes",
    "mlirstack-call-near-zero": "mlirstack.passes.near_zero:CallNearZero",
    "mlirstack-checks-out-of-kernels": "mlirstack.passes.index_checks:ChecksOutOfKernels",
    "mlirstack-compile-object": "mlirstack.passes.native_code:CompileObject",
    "mlirstack-compile-ptx": "mlirstack.passes.cuda.ptx:CompilePtx",
    "mlirstack-cpu-drop-unit-loops": "mlirstack.schedules.cpu.unit_loops:DropUnitLoops",
    "mlirstack-cpu-lower-vectors": "mlirstack.schedules.cpu.vector_lowering:LowerVectors",
    "mlirstack-cpu-pack": "mlirstack.schedules.cpu.packing:PackContractions",
    "mlirstack-cpu-parallelize": "mlirstack.schedules.cpu.parallel:ParallelizeKernels",
    "mlirstack-cpu-tile": "mlirstack.schedules.cpu.tiling:TileKernels",
    "mlirstack-cpu-unroll-strided-vectors": "mlirstack.schedules.cpu.strided_vectors:UnrollStridedVectors",
    "mlirstack-cpu-vectorize": "mlirstack.schedules.cpu.vectorize:VectorizeKernels",
    "mlirstack-debug-lines": "mlirstack.passes.debug_lines:DebugLines",
    "mlirstack-cut-unread": "mlirstack.passes.cut_unread:CutUnread",
    "mlirstack-describe-entries": "mlirstack.passes.entry:DescribeEntries",
    "mlirstack-disassemble": "mlirstack.passes.native_code:Disassemble",
    "mlirstack-disassemble-cubin": "mlirstack.passes.cuda.sass:DisassembleCubin",
    "mlirstack-export-entries": "mlirstack.passes.entry:ExportEntries",
    "mlirstack-fold-casts": "mlirstack.passes.fold_casts:FoldCasts",
    "mlirstack-fold-concats": "mlirstack.passes.fold_concats:FoldConcats",
    "mlirstack-fold-sizes": "mlirstack.passes.fold_sizes:FoldSizes",
    "mlirstack-fold-transposes": "mlirstack.passes.fold_transposes:FoldTransposes",
    "mlirstack-form-dispatches": "mlirstack.passes.cuda.dispatches:FormDispatches",
    "mlirstack-finish-onnx": "mlirstack.frontend.onnx.importer:FinishOnnx",
    "mlirstack-fuse-prepared": "mlirstack.passes.hoist_parameters:FusePrepared",
    "mlirstack-generalize-named": "mlirstack.passes.generalize:GeneralizeNamed",
    "mlirstack-hoist-accumulators": "mlirstack.passes.cuda.accumulators:HoistAccumulators",
    "mlirstack-hoist-parameters": "mlirstack.passes.hoist_parameters:HoistParameters",
    "mlirstack-import-fx": "mlirstack.frontend.import_fx:ImportFx",
    "mlirstack-iree-blocks": "mlirstack.passes.iree.blocks:BlockProducts",
    "mlirstack-iree-bind": "mlirstack.passes.iree.bind:BindKernels",
    "mlirstack-iree-check-kernels": "mlirstack.passes.iree.embedded_kernels:CheckKernels",
    "mlirstack-iree-doubles": "mlirstack.passes.iree.doubles:ExpandDoubles",
    "mlirstack-iree-embed": "mlirstack.passes.iree.embed:EmbedKernels",
    "mlirstack-iree-embed-linked": "mlirstack.passes.iree.linked_embed:EmbedLinked",
    "mlirstack-iree-export-linked": "mlirstack.passes.iree.linked_code:ExportLinked",
    "mlirstack-iree-linked-kernels": "mlirstack.passes.iree.linked_kernels:FormLinkedKernels",
    "mlirstack-iree-one-row": "mlirstack.passes.iree.rows:OneRow",
    "mlirstack-iree-output-channels-last": "mlirstack.schedules.iree:OutputChannelsLast",
    "mlirstack-iree-result-sizes": "mlirstack.passes.iree.results:ResultSizes",
    "mlirstack-iree-regions": "mlirstack.passes.iree.regions:FormRegions",
    "mlirstack-iree-split": "mlirstack.passes.iree.split:SplitProgram",
    "mlirstack-iree-translate-linked": "mlirstack.passes.iree.linked_code:TranslateLinked",
    "mlirstack-iree-widen-factors": "mlirstack.passes.iree.factors:WidenFactors",
    "mlirstack-iree-tensor-maps": "mlirstack.passes.iree.tensor_maps:MakeTensorMaps",
    "mlirstack-launches": "mlirstack.passes.cuda.launches:InlineLaunches",
    "mlirstack-merge-reductions": "mlirstack.passes.cuda.merge_reductions:MergeReductions",
    "mlirstack-lower-reshapes": "mlirstack.frontend.reshapes:LowerReshapes",
    "mlirstack-lower-quotients": "mlirstack.frontend.quotients:LowerQuotients",
    "mlirstack-mark-divisors": "mlirstack.frontend.quotients:MarkDivisors",
    "mlirstack-lower-roots": "mlirstack.frontend.roots:LowerRoots",
    "mlirstack-label-kernels": "mlirstack.passes.cuda.map_kernels:LabelKernels",
    "mlirstack-map-kernels": "mlirstack.passes.cuda.map_kernels:MapKernels",
    "mlirstack-lower-long-sums": "mlirstack.frontend.long_sums:LowerLongSums",
    "mlirstack-fill-unsigned-constants": "mlirstack.frontend.unsigned_constants:FillUnsignedConstants",
    "mlirstack-lower-bitcasts": "mlirstack.frontend.bitcasts:LowerBitcasts",
    "mlirstack-narrow-constants": "mlirstack.frontend.narrow:NarrowConstants",
    "mlirstack-number-arguments": "mlirstack.passes.entry:NumberArguments",
    "mlirstack-nvvm-expand": "mlirstack.passes.cuda.expansions:ExpandKernelOps",
    "mlirstack-nvvm-finish": "mlirstack.passes.cuda.nvvm:FinishKernels",
    "mlirstack-nvvm-prepare": "mlirstack.passes.cuda.nvvm:PrepareKernels",
    "mlirstack-order-loops": "mlirstack.passes.loop_order:OrderLoops",
    "mlirstack-outline-copies": "mlirstack.passes.cuda.outline_copies:OutlineCopies",
    "mlirstack-outline-kernels": "mlirstack.passes.outline:OutlineKernels",
    "mlirstack-overlap-launches": "mlirstack.passes.cuda.overlap:OverlapLaunches",
    "mlirstack-own-fills": "mlirstack.passes.buffers:OwnFills",
    "mlirstack-own-tm-tensor-buffers": "mlirstack.passes.buffers:OwnTmTensorBuffers",
    "mlirstack-name-reshapes": "mlirstack.frontend.onnx.views:NameReshapes",
    "mlirstack-pin-broadcasts": "mlirstack.passes.pin:PinBroadcasts",
    "mlirstack-pin-reshapes": "mlirstack.passes.pin:PinReshapes",
    "mlirstack-protect-arguments": "mlirstack.passes.entry:ProtectArguments",
    "mlirstack-round-sums-once": "mlirstack.passes.round_sums:RoundSumsOnce",
    "mlirstack-raise-roundings": "mlirstack.passes.raise_roundings:RaiseRoundings",
    "mlirstack-restore-locations": "mlirstack.passes.restore_locations:RestoreLocations",
    "mlirstack-results-to-arguments": "mlirstack.passes.buffers:ResultsToArguments",
    "mlirstack-schedule-file": "mlirstack.schedules.file:ScheduleFile",
    "mlirstack-settle-broadcasts": "mlirstack.passes.settle_broadcasts:SettleBroadcasts",
    "mlirstack-settle-selects": "mlirstack.passes.settle_selects:SettleSelects",
    "mlirstack-merge-equal": "mlirstack.passes.merge_equal:MergeEqual",
    "mlirstack-shared-globals": "mlirstack.passes.cuda.shared_buffers:SharedGlobals",
    "mlirstack-simplify-linalg": "mlirstack.passes.simplify:SimplifyLinalg",
    "mlirstack-sink-shared-buffers": "mlirstack.passes.cuda.shared_buffers:SinkSharedBuffers",
    "mlirstack-tabulate-kernels": "mlirstack.passes.cuda.planned:TabulateKernels",
    "mlirstack-transform-blocks": "mlirstack.schedules.cuda.product.transform_gemm:TileToBlocks",
    "mlirstack-transform-contract": "mlirstack.schedules.cuda.product.transform_gemm:FormContractions",
    "mlirstack-transform-launch": "mlirstack.schedules.cuda.product.transform_gemm:LaunchBlocks",
    "mlirstack-transform-multibuffer": "mlirstack.schedules.cuda.product.transform_gemm:MultiplyBuffers",
    "mlirstack-transform-pipeline": "mlirstack.schedules.cuda.product.transform_gemm:PipelineCopies",
    "mlirstack-transform-share": "mlirstack.schedules.cuda.product.transform_gemm:Share",
    "mlirstack-transform-threads": "mlirstack.schedules.cuda.product.transform_gemm:MapToThreads",
    "mlirstack-translate-kernels": "mlirstack.passes.cuda.device_code:TranslateKernels",
    "mlirstack-sink-expansions": "mlirstack.passes.sink_expansions:SinkExpansions",
    "mlirstack-translate-to-llvmir": "mlirstack.passes.llvm_ir:TranslateToLlvmIr",
    "mlirstack-two-roundings": "mlirstack.passes.two_roundings:TwoRoundings",
    "mlirstack-vector-math": "mlirstack.passes.vector_math:VectorMath",
    "mlirstack-write-plan": "mlirstack.passes.cuda.planned:WritePlan",
}

USER_PASSES = "MLIRSTACK_PASSES"  # files with passes of the user's own, separated by colons


def _user_steps() -> dict[str, str]:
    """Name and loader of every step in the files that the environment names; nothing is imported.

    A step is a class with ``name = "…"`` in its body and a base of :mod:`mlirstack.pipeline.step`.
    """
    files = [file for file in os.environ.get(USER_PASSES, "").split(os.pathsep) if file]
    return {name: loader for file in files for name, loader in _steps_in(Path(file))}


def _steps_in(file: Path) -> Iterator[tuple[str, str]]:
    import ast

    try:
        tree = ast.parse(file.read_text(), str(file))
    except (OSError, SyntaxError) as error:
        from mlirstack.errors import UsageError  # loads dataclasses, which mlirstack-opt does without

        raise UsageError(f"{USER_PASSES}: cannot read {file}: {error}") from error
    for node in tree.body:
        if not isinstance(node, ast.ClassDef) or not any(ast.unparse(b).split(".")[-1] in _BASES for b in node.bases):
            continue
        for statement in node.body:
            match statement:
                case (
                    ast.Assign(targets=[ast.Name(id="name")], value=ast.Constant(value=str(name)))
                    | ast.AnnAssign(target=ast.Name(id="name"), value=ast.Constant(value=str(name)))
                ):
                    yield name, f"{file.resolve()}:{node.name}"


_BASES = ("PythonPass", "Schedule", "Translation")
STEPS.update(_user_steps())


def register_steps() -> None:
    """Make all steps known to the pipeline parser."""
    for name, loader in STEPS.items():
        register_step(name, loader)
