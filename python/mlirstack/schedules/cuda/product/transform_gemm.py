"""Matrix products by the transform dialect: tiles, shared memory, threads, vectors, pipeline, one readable step at a time.

The route of ``--schedule transform``: upstream's ops and patterns down to ``mma.sync``, for contractions whose sizes are
multiples of the tile.  It shows how such a kernel comes about; the emitters beside it are faster.

A block of four warps computes 128 x 128 results, a warp 64 x 64 of them; three buffers of 32 steps of K are filled by
``cp.async`` ahead of the multiplication.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from mlirstack.bindings import ir
from mlirstack.ir.ops import functions, walk
from mlirstack.passes.functions import name_of
from mlirstack.pipeline.step import Schedule
from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.emitter import Parameters, choice_of
from mlirstack.schedules.cuda.graph import KernelGraph, Node, Tensor
from mlirstack.schedules.cuda.kernel import SCHEDULE
from mlirstack.schedules.transform import Handle, Script

TRANSFORM = "transform"

BLOCK = (128, 128)  # results of a block
DEPTH = 32  # steps of K in one buffer
BUFFERS = 3
WARPS = (2, 2)
THREADS = 32 * WARPS[0] * WARPS[1]
INSTRUCTION = (16, 8, 16)  # rows, columns and steps of K of one mma.sync
VECTOR = 8  # elements that a thread copies at once
_BODY = ["arith.extf", "arith.extf", "arith.mulf", "arith.addf"]


class TransformGemm:
    """Takes lone products of f16 or bf16 matrices with f32 results, of sizes that are multiples of the tile.

    What it writes comes out of the stages of this module, not out of :meth:`emit`.
    """

    name = TRANSFORM

    def choose(self, graph: KernelGraph, device: Device) -> Parameters | None:
        """No parameters: there is one tile."""
        nodes = graph.structured()
        return {} if len(nodes) == len(graph.nodes) == 1 and device.capability >= 80 and _fits(nodes[0]) else None

    def candidates(self, graph: KernelGraph, device: Device) -> list[Parameters]:
        """The one choice."""
        return [{}] if self.choose(graph, device) is not None else []

    def emit(self, function: Any, graph: KernelGraph, parameters: Parameters, device: Device) -> None:
        """Nothing: the stages "shared" to "pipelined" follow."""


def _fits(node: Node) -> bool:
    if node.iterators != ("parallel", "parallel", "reduction") or sorted(node.body_ops()) != sorted(_BODY):
        return False
    tile = (*BLOCK, DEPTH)
    if not all(size is not None and size % step == 0 for size, step in zip(node.sizes, tile, strict=True)):
        return False
    left, right = node.inputs
    starts_filled = not isinstance(node.initial[0], Tensor) and node.initial[0] is not None
    halves = all(o.tensor is not None and str(o.tensor.element) in ("f16", "bf16") for o in node.inputs)
    is_f32 = node.outputs[0].tensor is not None and isinstance(node.outputs[0].tensor.element, ir.F32Type)
    maps = (left.dims, right.dims, node.outputs[0].dims)
    return starts_filled and halves and is_f32 and maps in (((0, 2), (2, 1), (0, 1)), ((0, 2), (1, 2), (0, 1)))


# -------------------------------------------------------------------------------------------------------------- schedules


class _OverKernels(Schedule):
    """A schedule with one section for each kernel of this route."""

    def build(self, module: Any) -> str | None:
        """One section a kernel; None where there is none."""
        script = Script()
        for function in transform_kernels(module):
            script.comment(f"@{name_of(function)}")
            self.section(script, script.function(name_of(function)), function)
        return None if script.empty else script.text()

    @abstractmethod
    def section(self, script: Script, kernel: Handle, function: Any) -> None:
        """Write what happens to one kernel function."""


def transform_kernels(module: Any) -> list[Any]:
    """The kernel functions that this route writes."""
    return [f for f in functions(module) if SCHEDULE in f.attributes and choice_of(f).name == TRANSFORM]


@dataclass(frozen=True)
class TileToBlocks(_OverKernels):
    """Before: a contraction of tensors.  After: one ``scf.forall`` over blocks, with the fill inside, and a loop over K."""

    name: ClassVar[str] = "mlirstack-transform-blocks"

    def section(self, script: Script, kernel: Handle, function: Any) -> None:
        """See the class."""
        product, fill = script.named(kernel, "linalg.generic"), script.named(kernel, "linalg.fill")
        tiled, blocks = script.tile_parallel(product, BLOCK, ("#gpu.block<y>", "#gpu.block<x>"))
        script.fuse_into(fill, blocks)
        script.tile(tiled, (0, 0, DEPTH))
        script.cse(kernel)


@dataclass(frozen=True)
class Share(_OverKernels):
    """Before: the contraction of a block reads global memory.  After: it reads copies in shared memory."""

    name: ClassVar[str] = "mlirstack-transform-share"

    def section(self, script: Script, kernel: Handle, function: Any) -> None:
        """See the class."""
        script.promote(script.named(kernel, "linalg.generic"), (0, 1), "#gpu.memory_space<workgroup>")


@dataclass(frozen=True)
class MapToThreads(_OverKernels):
    """Before: copies and a contraction for a block.  After: vectors of the size of an instruction, for each warp and thread.

    Of the linalg.generic ops the two copies come first.
    """

    name: ClassVar[str] = "mlirstack-transform-threads"

    def section(self, script: Script, kernel: Handle, function: Any) -> None:
        """See the class."""
        copies = _copies(function)
        *sources, product = script.split_handle(script.named(kernel, "linalg.generic"), len(copies) + 1)
        for source, shape in zip(sources, copies, strict=True):
            self._copy(script, source, shape)
        warps = ("#gpu.warp<linear_dim_1>", "#gpu.warp<linear_dim_0>")
        fill, _ = script.tile_threads(script.named(kernel, "linalg.fill"), WARPS, warps)
        rows, columns, steps = INSTRUCTION
        tile, loops = script.tile_loops(fill, (rows, columns))
        script.vectorize(tile)
        script.unroll_all(loops, (_per_warp(0) // rows, _per_warp(1) // columns))
        product, _ = script.tile_threads(product, WARPS, warps)
        tile, loops = script.tile_loops(product, INSTRUCTION, (2, 0, 1))
        script.vectorize_contraction(tile)
        script.unroll_all(loops, (DEPTH // steps, _per_warp(0) // rows, _per_warp(1) // columns))

    def _copy(self, script: Script, source: Handle, shape: tuple[int, int]) -> None:
        """Each thread copies a few neighbouring rows, 16 bytes of each."""
        across = shape[1] // VECTOR
        down = THREADS // across
        threads = ("#gpu.thread<linear_dim_1>", "#gpu.thread<linear_dim_0>")
        piece, _ = script.tile_threads(source, (down, across), threads)
        row, loops = script.tile_loops(piece, (1, 0))
        script.vectorize(row)
        script.unroll_all(loops, (shape[0] // down,))


def _per_warp(axis: int) -> int:
    return BLOCK[axis] // WARPS[axis]


def _copies(function: Any) -> list[tuple[int, int]]:
    """Shapes of the tiles in shared memory, in the order of the copies into them."""
    copies = [op for op in walk(function) if op.name == "linalg.generic" and len(op.operands) == 2]
    return [(rows, columns) for rows, columns in (ir.MemRefType(op.operands[1].type).shape for op in copies)]


@dataclass(frozen=True)
class LaunchBlocks(_OverKernels):
    """Before: ``scf.forall`` over blocks, warps and threads.  After: ``gpu.launch``."""

    name: ClassVar[str] = "mlirstack-transform-launch"

    def section(self, script: Script, kernel: Handle, function: Any) -> None:
        """See the class."""
        script.launch_blocks_and_threads(kernel, (THREADS, 1, 1))


@dataclass(frozen=True)
class FormContractions(_OverKernels):
    """Before: multiplications of vectors and sums.  After: ``vector.contract`` of the sizes of an instruction."""

    name: ClassVar[str] = "mlirstack-transform-contract"

    def section(self, script: Script, kernel: Handle, function: Any) -> None:
        """See the class."""
        script.apply_patterns(
            kernel,
            "vector.reduction_to_contract",
            "vector.transfer_permutation_patterns",
            "vector.fold_arith_extension",
            "canonicalization",
        )
        script.apply_patterns(kernel, "memref.fold_memref_alias_ops", "canonicalization")
        script.cse(kernel)


@dataclass(frozen=True)
class MultiplyBuffers(_OverKernels):
    """Before: one buffer for each operand in shared memory.  After: three, used in turn."""

    name: ClassVar[str] = "mlirstack-transform-multibuffer"

    def section(self, script: Script, kernel: Handle, function: Any) -> None:
        """See the class."""
        script.multibuffer(script.named(script.named(kernel, "gpu.launch"), "memref.alloc"), BUFFERS)


@dataclass(frozen=True)
class PipelineCopies(_OverKernels):
    """Before: copies into shared memory, then ``mma.sync``.  After: asynchronous copies, two iterations ahead."""

    name: ClassVar[str] = "mlirstack-transform-pipeline"

    def section(self, script: Script, kernel: Handle, function: Any) -> None:
        """See the class."""
        launch = script.named(kernel, "gpu.launch")
        script.apply_patterns(
            launch,
            "vector.drop_unit_dims_with_shape_cast",
            "vector.cast_away_vector_leading_one_dim",
            "canonicalization",
        )
        script.apply_patterns(launch, "memref.fold_memref_alias_ops")
        launch = script.async_groups(launch)
        script.cse(launch)
        script.pipeline_copies(script.named(launch, "scf.for"), BUFFERS - 1)
