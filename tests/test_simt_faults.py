"""Kernels that are wrong in known ways: the SIMT emulator says what, where and which threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from simt import Deadlock, Divergence, Fault, Options, Race, Uninitialised, run_kernel, unwritten

from mlirstack.bindings import ir, new_context

pytestmark = pytest.mark.portable

WORKGROUP = "#gpu.address_space<workgroup>"
THREAD = """
    %thread = gpu.thread_id x
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c32 = arith.constant 32 : index
    %c127 = arith.constant 127 : index
    %mirrored = arith.subi %c127, %thread : index
"""


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with new_context(), ir.Location.unknown():
        yield


def run(
    body: str, arguments: str = "", given: tuple[Any, ...] = (), *, grid: int = 1, options: Options | None = None
) -> Any:
    """Launch a kernel of blocks of 128 threads with 128 floats and an mbarrier in shared memory."""
    module = ir.Module.parse(f"""
        module attributes {{gpu.container_module}} {{
          gpu.module @device {{
            memref.global "private" @tile : memref<128xf32, {WORKGROUP}>
            llvm.mlir.global external @barrier() {{addr_space = 3 : i32, alignment = 8 : i64}} : !llvm.array<1 x i64>
            gpu.func @k({arguments}) kernel attributes {{known_block_size = array<i32: 128, 1, 1>}} {{
              {THREAD}
              {body}
              gpu.return
            }}
          }}
        }}""")
    return run_kernel(module, "k", list(given), [grid], options=options)


def through_shared_memory(between: str, before: str = "") -> str:
    """Thread i reads what thread 127 - i wrote."""
    return f"""
        {before}
        %tile = memref.get_global @tile : memref<128xf32, {WORKGROUP}>
        %v = memref.load %x[%thread] : memref<?xf32>
        memref.store %v, %tile[%thread] : memref<128xf32, {WORKGROUP}>
        {between}
        %w = memref.load %tile[%mirrored] : memref<128xf32, {WORKGROUP}>
        memref.store %w, %y[%thread] : memref<?xf32>
    """


ARGUMENTS = "%x: memref<?xf32>, %y: memref<?xf32>"
X = np.arange(128, dtype=np.float32)
NAMED = """
    %one = arith.constant 1 : i32
    %threads = arith.constant 128 : i32
    nvvm.barrier id = %one number_of_threads = %threads
"""
TO_BARRIER = """
    %barrier = llvm.mlir.addressof @barrier : !llvm.ptr<3>
    %is_first = arith.cmpi eq, %thread, %c0 : index
    %count = arith.constant 128 : i32
    %zero = arith.constant 0 : i32
    %ticks = arith.constant 1000 : i32
    scf.if %is_first { nvvm.mbarrier.init %barrier, %count : !llvm.ptr<3>, i32 }
    gpu.barrier
"""
ARRIVE = "%state = nvvm.mbarrier.arrive %barrier : !llvm.ptr<3> -> i64\n"
WAIT = "nvvm.mbarrier.try_wait.parity %barrier, %zero, %ticks : !llvm.ptr<3>, i32, i32\n"


@pytest.mark.parametrize(
    ("before", "between"),
    [("", "gpu.barrier"), ("", NAMED), (TO_BARRIER, ARRIVE + WAIT)],
    ids=["block barrier", "named barrier", "mbarrier"],
)
def test_each_barrier_orders_shared_memory(before: str, between: str) -> None:
    _, y = run(through_shared_memory(between, before), ARGUMENTS, (X, unwritten([128], np.float32)))
    np.testing.assert_array_equal(y, X[::-1])


@pytest.mark.parametrize("before", ["", TO_BARRIER + ARRIVE], ids=["no barrier", "arrives without waiting"])
def test_race(before: str) -> None:
    with pytest.raises(Race, match=r"written by warp 3(.|\n)*thread 0(.|\n)*memref.load"):
        run(through_shared_memory("", before), ARGUMENTS, (X, unwritten([128], np.float32)))


def test_race_of_a_write_with_earlier_reads() -> None:
    """The second round overwrites what slower warps may still read."""
    loop = f"""
        %tile = memref.get_global @tile : memref<128xf32, {WORKGROUP}>
        %c2 = arith.constant 2 : index
        scf.for %round = %c0 to %c2 step %c1 {{
          %v = memref.load %x[%thread] : memref<?xf32>
          memref.store %v, %tile[%thread] : memref<128xf32, {WORKGROUP}>
          gpu.barrier
          %w = memref.load %tile[%mirrored] : memref<128xf32, {WORKGROUP}>
          memref.store %w, %y[%thread] : memref<?xf32>
        }}
    """
    with pytest.raises(Race, match="read by warp"):
        run(loop, ARGUMENTS, (X, unwritten([128], np.float32)))


def test_two_threads_write_different_values_to_one_place() -> None:
    body = "%v = memref.load %x[%thread] : memref<?xf32>\nmemref.store %v, %y[%c0] : memref<?xf32>"
    with pytest.raises(Race, match="different values"):
        run(body, ARGUMENTS, (X, unwritten([128], np.float32)))


def test_two_blocks_write_one_place() -> None:
    body = "%v = memref.load %x[%thread] : memref<?xf32>\nmemref.store %v, %y[%thread] : memref<?xf32>"
    with pytest.raises(Race, match=r"block \d wrote in the same launch"):
        run(body, ARGUMENTS, (X, unwritten([128], np.float32)), grid=2)


def test_races_are_not_looked_for_where_that_is_not_asked_for() -> None:
    _, y = run(through_shared_memory(""), ARGUMENTS, (X, unwritten([128], np.float32)), options=Options(races=False))
    np.testing.assert_array_equal(y, X[::-1])


def test_deadlock_lists_who_waits_where() -> None:
    body = TO_BARRIER + f"scf.if %is_first {{ {ARRIVE} }}\n" + WAIT
    with pytest.raises(Deadlock, match=r"block 0 thread 0(.|\n)*nvvm.mbarrier.try_wait.parity"):
        run(body)


def test_deadlock_of_two_named_barriers() -> None:
    """Half of the threads wait at barrier 1, the other half at barrier 2, both for all."""
    body = """
        %c64 = arith.constant 64 : index
        %half = arith.cmpi ult, %thread, %c64 : index
        %one = arith.constant 1 : i32
        %two = arith.constant 2 : i32
        %id = arith.select %half, %one, %two : i32
        %threads = arith.constant 128 : i32
        nvvm.barrier id = %id number_of_threads = %threads
    """
    with pytest.raises(Deadlock, match=r"nvvm\.barrier"):
        run(body)


def test_more_arrivals_than_a_barrier_is_for() -> None:
    body = """
        %one = arith.constant 1 : i32
        %threads = arith.constant 64 : i32
        nvvm.barrier id = %one number_of_threads = %threads
    """
    with pytest.raises(Divergence, match="128 threads arrive at barrier 1, which is for 64"):
        run(body)


def test_halves_of_a_block_meet_at_their_own_barriers() -> None:
    """Each half reverses its own part, as often as its number says: the strands go apart and come together again."""
    body = f"""
        %tile = memref.get_global @tile : memref<128xf32, {WORKGROUP}>
        %c2 = arith.constant 2 : index
        %c63 = arith.constant 63 : index
        %c64 = arith.constant 64 : index
        %half = arith.divui %thread, %c64 : index
        %first = arith.muli %half, %c64 : index
        %within = arith.remui %thread, %c64 : index
        %reversed = arith.subi %c63, %within : index
        %other = arith.addi %first, %reversed : index
        %rounds = arith.addi %half, %c1 : index
        %half32 = arith.index_cast %half : index to i32
        %one = arith.constant 1 : i32
        %id = arith.addi %half32, %one : i32
        %threads = arith.constant 64 : i32
        %v = memref.load %x[%thread] : memref<?xf32>
        %last = scf.for %round = %c0 to %rounds step %c1 iter_args(%value = %v) -> (f32) {{
          memref.store %value, %tile[%thread] : memref<128xf32, {WORKGROUP}>
          nvvm.barrier id = %id number_of_threads = %threads
          %w = memref.load %tile[%other] : memref<128xf32, {WORKGROUP}>
          nvvm.barrier id = %id number_of_threads = %threads
          scf.yield %w : f32
        }}
        gpu.barrier
        memref.store %last, %y[%thread] : memref<?xf32>
    """
    _, y = run(body, ARGUMENTS, (X, unwritten([128], np.float32)))
    np.testing.assert_array_equal(y, np.concatenate([X[:64][::-1], X[64:]]))


@pytest.mark.parametrize("waits", [True, False])
def test_asynchronous_copy(waits: bool) -> None:
    module = ir.Module.parse(f"""
        module attributes {{gpu.container_module}} {{
          gpu.module @device {{
            llvm.mlir.global external @tile() {{addr_space = 3 : i32, alignment = 16 : i64}} : !llvm.array<512 x i8>
            gpu.func @k(%x: !llvm.ptr<1>, %y: !llvm.ptr<1>) kernel attributes {{known_block_size = array<i32: 32, 1, 1>}} {{
              %thread = nvvm.read.ptx.sreg.tid.x : i32
              %tile = llvm.mlir.addressof @tile : !llvm.ptr<3>
              %from = llvm.getelementptr %x[%thread] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<4xf32>
              %at = llvm.getelementptr %tile[%thread] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, vector<4xf32>
              %to = llvm.getelementptr %y[%thread] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<4xf32>
              %twelve = arith.constant 12 : i32
              nvvm.cp.async.shared.global %at, %from, 16, cache = cg, %twelve : !llvm.ptr<3>, !llvm.ptr<1>, i32
              nvvm.cp.async.commit.group
              {"nvvm.cp.async.wait.group 0" if waits else ""}
              %v = llvm.load %at : !llvm.ptr<3> -> vector<4xf32>
              llvm.store %v, %to : vector<4xf32>, !llvm.ptr<1>
              gpu.return
            }}
          }}
        }}""")
    arguments = [X, unwritten([128], np.float32)]
    if not waits:
        with pytest.raises(Uninitialised, match=r"llvm\.load"):
            run_kernel(module, "k", arguments, [1])
        return
    _, y = run_kernel(module, "k", arguments, [1])
    np.testing.assert_array_equal(y.reshape(-1, 4), np.where(np.arange(4) < 3, X.reshape(-1, 4), 0))


def test_launch_with_another_block_than_the_kernel_is_compiled_for() -> None:
    module = ir.Module.parse("""
        module attributes {gpu.container_module} {
          gpu.module @device {
            gpu.func @k() kernel attributes {known_block_size = array<i32: 128, 1, 1>} { gpu.return }
          }
        }""")
    with pytest.raises(Fault, match="compiled for"):
        run_kernel(module, "k", [], [1], threads=64)
