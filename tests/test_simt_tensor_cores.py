"""The SIMT emulator on tensor cores and the copy engine: tiles against numpy, and pipelines with one wait missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from simt import Deadlock, Fault, Misaligned, Race, Uninitialised, run_plan

from mlirstack.bindings import dialect, ir, new_context
from mlirstack.schedules.cuda.instructions import mbarrier, shared_memory, tensor_core, tma, warpgroup
from mlirstack.schedules.cuda.instructions.tensor_core import OPERANDS
from mlirstack.schedules.cuda.kernel import Kernel, TensorMapLayout
from mlirstack.schedules.cuda.values import Int

pytestmark = pytest.mark.portable

DTYPES = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "tf32": np.dtype(np.float32),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "s8": np.dtype(np.int8),
}
MLIR_TYPES = {"f16": "f16", "bf16": "bf16", "tf32": "f32", "e4m3": "f8E4M3FN", "e5m2": "f8E5M2", "s8": "i8"}


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with new_context(), ir.Location.unknown():
        yield


def small_numbers(name: str, *shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Numbers that every tensor-core type holds exactly."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(DTYPES[name])


def host(shapes: list[str], result: str) -> tuple[Any, Any, list[Any], Any]:
    """A module whose @main takes memrefs and returns a new one: module, function, arguments, result."""
    arguments = ", ".join(f"%a{i}: memref<{shape}>" for i, shape in enumerate(shapes))
    module = ir.Module.parse(f"""
        func.func @main({arguments}) -> memref<{result}> {{
          %c = memref.alloc() : memref<{result}>
          return %c : memref<{result}>
        }}""")
    function = module.body.operations[0]
    block = function.regions[0].blocks[0]
    return module, function, list(block.arguments), block.operations[0].results[0]


def exact(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """``a`` times the transpose of ``b``."""
    return a.astype(np.float64) @ b.astype(np.float64).T


# ------------------------------------------------------------------------------------------------------------- mma.sync


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_mma_of_one_warp(name: str) -> None:
    """16 x 8 results of 32 bytes of k: fragments through ldmatrix."""
    operands = OPERANDS[name]
    total = "i32" if operands.is_integer else "f32"
    element = MLIR_TYPES[name]
    module, function, (a, b), c = host([f"16x{operands.k}x{element}", f"8x{operands.k}x{element}"], f"16x8x{total}")
    kernel = Kernel(function, threads=32, schedule="test", suffix="_kernel")
    pointers = [kernel.pointer(memref) for memref in (a, b, c)]
    with kernel.body():
        lane, shared = kernel.thread(), kernel.shared()
        row_of_a = kernel.offset(shared, lane * 16)
        # Matrices of A: rows 0-7 and 8-15 of the first 16 bytes, then of the second; of B: its two halves.
        tensor_core.copy_async(kernel, row_of_a, kernel.offset(pointers[0], (lane & 15) * 32 + (lane >> 4) * 16), 16)
        half_of_b = kernel.offset(pointers[1], (lane & 7) * 32 + ((lane >> 3) & 1) * 16)
        row_of_b = kernel.offset(shared, lane * 16 + 512)
        tensor_core.copy_async(kernel, row_of_b, half_of_b, 16)
        tensor_core.commit_copies()
        tensor_core.wait_for_copies(0)
        fragments_a, fragments_b = (tensor_core.load_matrices(kernel, pointer) for pointer in (row_of_a, row_of_b))
        zero = (kernel.integer(0) if operands.is_integer else kernel.real(0.0)).value
        sums = tensor_core.multiply(kernel, operands, fragments_a, fragments_b[:2], [zero] * 4)
        for position, value in enumerate(sums):
            row = (lane >> 2) + 8 * (position // 2)
            kernel.store(value, kernel.offset(pointers[2], row * 8 + (lane & 3) * 2 + position % 2, kernel.i32))
    kernel.launch((1,), shared_bytes=1024)
    given = small_numbers(name, 16, operands.k), small_numbers(name, 8, operands.k, seed=1)
    (result,) = run_plan(module, given)
    np.testing.assert_array_equal(result, exact(*given))


def test_matrices_transposed_on_the_way() -> None:
    """ldmatrix.trans, then stmatrix: four 8 x 8 matrices, each transposed."""
    module, function, (a,), c = host(["4x8x8xf16"], "4x8x8xf16")
    kernel = Kernel(function, threads=32, schedule="test", suffix="_kernel")
    source, target = kernel.pointer(a), kernel.pointer(c)
    with kernel.body():
        row = kernel.offset(kernel.shared(), kernel.thread() * 16)
        quad = ir.VectorType.get([4], kernel.i32)
        kernel.store(kernel.load(quad, kernel.offset(source, kernel.thread() * 16), 16), row, 16)
        registers = [Int(value) for value in tensor_core.load_matrices(kernel, row, transposed=True)]
        shared_memory.store_matrix(row, registers)
        kernel.store(kernel.load(quad, row, 16), kernel.offset(target, kernel.thread() * 16), 16)
    kernel.launch((1,), shared_bytes=512)
    given = np.arange(256, dtype=np.float16).reshape(4, 8, 8)
    (result,) = run_plan(module, [given])
    np.testing.assert_array_equal(result, given.swapaxes(1, 2))


# ---------------------------------------------------------------------------------------------------- copy engine and wgmma

TILE = 64  # rows of A and B in a tile; 128 bytes of k
TILE_BYTES = TILE * 128
STAGES = 2


def product(name: str, m: int, n: int, k: int, *, missing: str = "") -> Any:  # noqa: PLR0915 (one kernel)
    """C = A · Bᵀ for A [m, k], B [n, k]: one thread loads tiles, one warpgroup multiplies.

    ``missing``: which step of the pipeline is left out: "wait full", "wait empty", "arrive", "wait wgmma".
    """
    operands = OPERANDS[name]
    element, total = MLIR_TYPES[name], "i32" if operands.is_integer else "f32"
    module, function, (a, b), c = host([f"{m}x{k}x{element}", f"{n}x{k}x{element}"], f"{m}x{n}x{total}")
    kernel = Kernel(function, threads=256, schedule="test", suffix="_kernel")
    size, tile_k = DTYPES[name].itemsize, 128 // DTYPES[name].itemsize
    kind = "i8" if size == 1 else name
    maps = [
        kernel.tensor_map(memref, TensorMapLayout(kind, (k, rows), (k * size,), (tile_k, TILE)))
        for memref, rows in ((a, m), (b, n))
    ]
    target = kernel.pointer(c)
    steps = -(-k // tile_k)
    with kernel.body():
        shared, thread = kernel.shared(), kernel.thread()
        ring = mbarrier.Ring(kernel, kernel.offset(shared, 2 * TILE_BYTES * STAGES), STAGES, 1)

        def initialise() -> None:
            ring.initialize()
            mbarrier.publish_barriers()

        kernel.when(thread.equals(0), initialise)
        kernel.barrier()
        row0, column0 = kernel.block_index() * TILE, kernel.block_index("y") * TILE
        first = ring.first()

        def load(step: Int, index: Int, phase: Int) -> list[Int]:
            stage = mbarrier.Stage(index, phase)
            if missing != "wait empty":
                ring.wait_empty(stage)
            mbarrier.arrive_expecting(kernel, ring.full(index), 2 * TILE_BYTES)
            for factor, (tensor_map, start) in enumerate(zip(maps, (row0, column0), strict=True)):
                place = kernel.offset(shared, index * (2 * TILE_BYTES) + factor * TILE_BYTES)
                tma.tensor_load(kernel, place, tensor_map, [step * tile_k, start], ring.full(index))
            following = ring.next(stage)
            return [following.index, following.phase]

        def load_all() -> None:
            kernel.loop(0, steps, 1, [first.index, first.phase], load)

        def multiply(step: Int, index: Int, phase: Int, sums: Any) -> list[Any]:
            stage, layout = mbarrier.Stage(index, phase), warpgroup.SharedOperand(operands, True)
            if missing != "wait full":
                ring.wait_full(stage)
            base = shared_memory.shared_address(kernel, shared) + index * (2 * TILE_BYTES)
            left, right = layout.descriptor(kernel, base), layout.descriptor(kernel, base + TILE_BYTES)
            warpgroup.wgmma_fence()
            for part in range(4):
                factors = layout.advanced(left, part), layout.advanced(right, part)
                sums = warpgroup.wgmma(sums, *factors, TILE, operands, (True, True))
            warpgroup.wgmma_commit()
            if missing != "wait wgmma":
                warpgroup.wgmma_wait(0)
            if missing != "arrive":
                kernel.when((thread & 127).equals(0), lambda: mbarrier.arrive(ring.empty(index)))
            following = ring.next(stage)
            return [following.index, following.phase, sums]

        def consume() -> None:
            sums = warpgroup.zero_accumulators(kernel, TILE // 2, operands)
            *_, sums = kernel.loop(0, steps, 1, [first.index, first.phase, sums], multiply)
            if missing != "wait wgmma":
                warpgroup.wgmma_wait(0)
            lane, warp = thread & 31, (thread & 127) >> 5
            for register, value in enumerate(warpgroup.accumulator_values(kernel, sums, TILE // 2, operands)):
                row = row0 + warp * 16 + (lane >> 2) + register // 2 % 2 * 8
                column = column0 + (lane & 3) * 2 + (register // 4 * 8 + register % 2)
                place = kernel.offset(target, row * n + column, kernel.i32)
                kernel.when((row < m) & (column < n), lambda value=value, place=place: kernel.store(value, place))

        kernel.either(thread < 128, lambda: kernel.when(thread.equals(0), load_all), consume)
    kernel.launch((-(-m // TILE), -(-n // TILE)), shared_bytes=2 * TILE_BYTES * STAGES + ring.bytes(STAGES))
    return module


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_wgmma_out_of_tiles_of_the_copy_engine(name: str) -> None:
    """More than one tile each way, the last ones partly outside."""
    m, n, k = 65, 40, 5 * 128 // DTYPES[name].itemsize // 2
    given = small_numbers(name, m, k), small_numbers(name, n, k, seed=1)
    (result,) = run_plan(product(name, m, n, k), given)
    np.testing.assert_array_equal(result, exact(*given))


@pytest.mark.parametrize(
    ("missing", "fault", "message"),
    [
        ("wait full", Uninitialised, "nvvm.wgmma.mma_async"),
        ("wait empty", Fault, "nvvm.mbarrier.arrive.expect_tx|nvvm.cp.async.bulk.tensor"),
        ("arrive", Deadlock, "nvvm.mbarrier.try_wait.parity"),
        ("wait wgmma", Race, "read by an asynchronous operation"),
    ],
)
def test_pipeline_with_a_step_missing(missing: str, fault: type[Fault], message: str) -> None:
    given = small_numbers("f16", 64, 512), small_numbers("f16", 64, 512, seed=1)
    with pytest.raises(fault, match=message):
        run_plan(product("f16", 64, 64, 512, missing=missing), given)


def test_registers_of_wgmma_are_not_read_before_the_wait() -> None:
    """One tile along k: nothing is overwritten, but the sums are read too early."""
    given = small_numbers("f16", 64, 64), small_numbers("f16", 64, 64, seed=1)
    with pytest.raises(Fault, match=r"registers of a wgmma are read(.|\n)*llvm.extractvalue"):
        run_plan(product("f16", 64, 64, 64, missing="wait wgmma"), given)


def copy_through_shared_memory(*, fenced: bool, waits: bool, offset: int = 0) -> Any:
    """A tile of 8 x 32 floats written by threads, stored by the copy engine."""
    module, function, (a,), c = host(["8x32xf32"], "8x32xf32")
    kernel = Kernel(function, threads=256, schedule="test", suffix="_kernel")
    source, target = kernel.pointer(a), kernel.tensor_map(c, TensorMapLayout("f32", (32, 8), (128,), (32, 8)))
    with kernel.body():
        thread = kernel.thread()
        tile = kernel.offset(kernel.shared(), offset)
        row, chunk, within = thread >> 5, (thread & 31) >> 2, thread & 3
        place = row * 128 + ((chunk ^ row) << 4) + (within << 2)
        kernel.store(kernel.load(kernel.f32, kernel.offset(source, thread, kernel.f32)), kernel.offset(tile, place))
        if fenced:
            tma.fence_shared()
        kernel.barrier()

        def store() -> None:
            tma.tensor_store(target, tile, [kernel.integer(0), kernel.integer(0)])
            tma.commit_stores()
            if waits:
                tma.wait_stores(0)

        kernel.when(thread.equals(0), store)
        warpgroup.named_barrier(kernel, 1, 256)
    kernel.launch((1,), shared_bytes=2048)
    return module


def test_store_of_the_copy_engine() -> None:
    given = np.arange(256, dtype=np.float32).reshape(8, 32)
    (result,) = run_plan(copy_through_shared_memory(fenced=True, waits=True), [given])
    np.testing.assert_array_equal(result, given)


@pytest.mark.parametrize(
    ("arguments", "fault", "message"),
    [
        ({"fenced": False, "waits": True}, Race, "fence.proxy.async is missing"),
        ({"fenced": True, "waits": False}, Fault, "before bulk stores of block 0 thread 0"),
        ({"fenced": True, "waits": True, "offset": 128}, Misaligned, "multiple of 1024 bytes"),
    ],
    ids=["no fence", "no wait", "alignment"],
)
def test_store_of_the_copy_engine_that_is_wrong(arguments: dict[str, Any], fault: type[Fault], message: str) -> None:
    with pytest.raises(fault, match=message):
        run_plan(copy_through_shared_memory(**arguments), [np.zeros((8, 32), np.float32)])


# ----------------------------------------------------------------------------------------------------------------- clusters


def exchange(*, waits: bool = True) -> Any:
    """Two blocks: a box goes to both (multicast), then each sends it to the other one, element by element reversed."""
    module, function, (a,), c = host(["1x128xf32"], "2x128xf32")
    kernel = Kernel(function, threads=32, schedule="test", suffix="_kernel", cluster=2)
    box = kernel.tensor_map(a, TensorMapLayout("f32", (128, 1), (512,), (128, 1), swizzle=0))
    target = kernel.pointer(c)
    with kernel.body():
        shared, lane, rank = kernel.shared(), kernel.thread(), shared_memory.block_in_cluster(kernel)
        first, second = kernel.offset(shared, 1024), kernel.offset(shared, 1032)

        def initialise() -> None:
            mbarrier.initialize_barrier(kernel, first, 1)
            mbarrier.initialize_barrier(kernel, second, 1)
            mbarrier.publish_barriers()
            mbarrier.arrive_expecting(kernel, first, 512)
            mbarrier.arrive_expecting(kernel, second, 512)

        kernel.when(lane.equals(0), initialise)
        shared_memory.cluster_barrier(aligned=True)

        def load() -> None:
            tma.tensor_load(kernel, shared, box, [kernel.integer(0)] * 2, first, multicast=3)

        kernel.when(lane.equals(0) & rank.equals(0), load)
        if waits:
            mbarrier.wait(kernel, first, 0)
        quad = ir.VectorType.get([4], kernel.f32)
        loaded = kernel.load(quad, kernel.offset(shared, lane * 16), 16)
        values = list(dialect("vector").ToElementsOp(loaded).results)
        there = shared_memory.of_block(kernel.offset(shared, (31 - lane) * 16 + 512), rank ^ 1)
        shared_memory.store_remote(kernel, values[::-1], there, shared_memory.of_block(second, rank ^ 1))
        mbarrier.wait(kernel, second, 0)
        received = kernel.load(quad, kernel.offset(shared, lane * 16 + 512), 16)
        kernel.store(received, kernel.offset(target, (rank * 32 + lane) * 16), 16)
        shared_memory.cluster_barrier(aligned=True)
    kernel.launch((2,), shared_bytes=1040)
    return module


def test_blocks_of_a_cluster_exchange_shared_memory() -> None:
    given = np.arange(128, dtype=np.float32)[None]
    (result,) = run_plan(exchange(), [given])
    np.testing.assert_array_equal(result, np.concatenate([given[:, ::-1]] * 2))


def test_a_block_that_does_not_wait_for_what_another_one_loads() -> None:
    with pytest.raises(Uninitialised, match=r"llvm\.load"):
        run_plan(exchange(waits=False), [np.zeros((1, 128), np.float32)])
