"""The SIMT emulator on hand-written kernels whose answers are known, and on kernels that are wrong in known ways."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from simt import Divergence, Fault, Misaligned, OutOfBounds, Uninitialised, run_kernel, run_plan, unwritten

from mlirstack.bindings import ir, new_context

pytestmark = pytest.mark.portable


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with new_context(), ir.Location.unknown():
        yield


def kernel_module(body: str, arguments: str, *, threads: str | int = 64, top: str = "") -> Any:
    """A module with one kernel ``@k``."""
    block = threads if isinstance(threads, str) else f"{threads}, 1, 1"
    return ir.Module.parse(f"""
        module attributes {{gpu.container_module}} {{
          gpu.module @device {{
            {top}
            gpu.func @k({arguments}) kernel attributes {{known_block_size = array<i32: {block}>}} {{
              {body}
              gpu.return
            }}
          }}
        }}""")


GLOBAL_INDEX = """
    %thread = gpu.thread_id x
    %block = gpu.block_id x
    %threads = gpu.block_dim x
    %start = arith.muli %block, %threads : index
    %i = arith.addi %start, %thread : index
"""
COPY = """
    %n = memref.dim %x, %c0 : memref<?xf32>
    %inside = arith.cmpi ult, %i, %n : index
    scf.if %inside {
      %value = memref.load %x[%i] : memref<?xf32>
      memref.store %value, %y[%i] : memref<?xf32>
    }
"""
X, Y = "%x: memref<?xf32>", "%y: memref<?xf32>"
C0 = "%c0 = arith.constant 0 : index\n"


def numbers(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("size", [1, 63, 64, 65, 1000])
def test_copy_with_a_masked_tail(size: int) -> None:
    module = kernel_module(C0 + GLOBAL_INDEX + COPY, f"{X}, {Y}")
    x = numbers(size)
    _, y = run_kernel(module, "k", [x, unwritten([size], np.float32)], [-(-size // 64)])
    np.testing.assert_array_equal(y, x)


def test_access_behind_the_end_names_op_and_thread() -> None:
    body = C0 + GLOBAL_INDEX + "%v = memref.load %x[%i] : memref<?xf32>\nmemref.store %v, %y[%i] : memref<?xf32>"
    with pytest.raises(
        OutOfBounds, match=r"index 100 of axis 0, whose size is 100(.|\n)*block 1 thread 36(.|\n)*memref.load"
    ):
        run_kernel(kernel_module(body, f"{X}, {Y}"), "k", [numbers(100), unwritten([128], np.float32)], [2])


POINTER_COPY = (
    GLOBAL_INDEX
    + """
    %n = arith.index_cast %i : index to i32
    %from = llvm.getelementptr %x[%n] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, {element}
    %to = llvm.getelementptr %y[%n] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, {element}
    %v = llvm.load %from {{alignment = {alignment} : i64}} : !llvm.ptr<1> -> {loaded}
    llvm.store %v, %to {{alignment = {alignment} : i64}} : {loaded}, !llvm.ptr<1>
"""
)
POINTERS = "%x: !llvm.ptr<1>, %y: !llvm.ptr<1>"


def test_pointer_behind_the_end() -> None:
    body = POINTER_COPY.format(element="f32", loaded="f32", alignment=4)
    with pytest.raises(OutOfBounds, match="byte 400 of argument 0"):
        run_kernel(kernel_module(body, POINTERS), "k", [numbers(100), unwritten([128], np.float32)], [2])


def test_vector_access_at_an_address_that_is_no_multiple_of_it() -> None:
    body = POINTER_COPY.format(element="f32", loaded="vector<4xf32>", alignment=16)
    with pytest.raises(Misaligned, match="byte 4 of argument 0"):
        run_kernel(kernel_module(body, POINTERS), "k", [numbers(100), unwritten([128], np.float32)], [1])


def test_read_of_what_nothing_wrote() -> None:
    module = kernel_module(C0 + GLOBAL_INDEX + COPY, f"{X}, {Y}")
    with pytest.raises(Uninitialised, match="argument 0"):
        run_kernel(module, "k", [unwritten([10], np.float32), unwritten([10], np.float32)], [1])


def test_output_that_is_not_written_completely() -> None:
    module = ir.Module.parse("""
        module {
          func.func @main() -> memref<4xf32> {
            %y = memref.alloc() : memref<4xf32>
            return %y : memref<4xf32>
          }
        }""")
    with pytest.raises(Uninitialised):
        run_plan(module, [])


SHARED = 'memref.global "private" @{name} : memref<{shape}, #gpu.address_space<workgroup>>'


def block_sum(*, barrier: bool) -> Any:
    """Sum of 128 numbers: shuffles within the warps, shared memory between them."""
    shuffles = ""
    for step, distance in enumerate((16, 8, 4, 2, 1)):
        shuffles += f"""
            %d{step} = arith.constant {distance} : i32
            %s{step}, %ok{step} = gpu.shuffle xor %v{step}, %d{step}, %width : f32
            %v{step + 1} = arith.addf %v{step}, %s{step} : f32"""
    body = f"""
        %c0 = arith.constant 0 : index
        %c4 = arith.constant 4 : index
        %c1 = arith.constant 1 : index
        %zero = arith.constant 0.0 : f32
        %width = arith.constant 32 : i32
        {GLOBAL_INDEX}
        %v0 = memref.load %x[%i] : memref<?xf32>
        {shuffles}
        %partial = memref.get_global @partial : memref<4xf32, #gpu.address_space<workgroup>>
        %warp = gpu.subgroup_id : index
        %lane = gpu.lane_id
        %first = arith.cmpi eq, %lane, %c0 : index
        scf.if %first {{ memref.store %v5, %partial[%warp] : memref<4xf32, #gpu.address_space<workgroup>> }}
        {"gpu.barrier" if barrier else ""}
        %total = scf.for %w = %c0 to %c4 step %c1 iter_args(%sum = %zero) -> (f32) {{
          %p = memref.load %partial[%w] : memref<4xf32, #gpu.address_space<workgroup>>
          %next = arith.addf %sum, %p : f32
          scf.yield %next : f32
        }}
        memref.store %total, %y[%i] : memref<?xf32>
    """
    return kernel_module(body, f"{X}, {Y}", threads=128, top=SHARED.format(name="partial", shape="4xf32"))


def test_block_reduction() -> None:
    x = numbers(3 * 128)
    _, y = run_kernel(block_sum(barrier=True), "k", [x, unwritten([3 * 128], np.float32)], [3])
    expected = np.repeat(x.reshape(3, 128).astype(np.float64).sum(axis=1), 128)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_transposition_through_shared_memory() -> None:
    body = """
        %tx = gpu.thread_id x
        %ty = gpu.thread_id y
        %tile = memref.get_global @tile : memref<8x9xf32, #gpu.address_space<workgroup>>
        %v = memref.load %x[%ty, %tx] : memref<8x8xf32>
        memref.store %v, %tile[%ty, %tx] : memref<8x9xf32, #gpu.address_space<workgroup>>
        gpu.barrier
        %w = memref.load %tile[%tx, %ty] : memref<8x9xf32, #gpu.address_space<workgroup>>
        memref.store %w, %y[%ty, %tx] : memref<8x8xf32>
    """
    module = kernel_module(
        body, "%x: memref<8x8xf32>, %y: memref<8x8xf32>", top=SHARED.format(name="tile", shape="8x9xf32"), threads="8, 8, 1"
    )
    x = numbers(8, 8)
    _, y = run_kernel(module, "k", [x, unwritten([8, 8], np.float32)], [1])
    np.testing.assert_array_equal(y, x.T)


def test_barrier_that_some_threads_do_not_reach() -> None:
    body = (
        GLOBAL_INDEX
        + """
        %limit = arith.constant 32 : index
        %some = arith.cmpi ult, %thread, %limit : index
        scf.if %some { gpu.barrier }
    """
    )
    with pytest.raises(Divergence, match="barrier"):
        run_kernel(kernel_module(body, ""), "k", [], [1])


def test_loops_of_different_length() -> None:
    """Thread i sums 0 … i - 1 and divides the sum by two until it is odd."""
    body = (
        GLOBAL_INDEX
        + """
        %zero = arith.constant 0 : i32
        %one = arith.constant 1 : i32
        %two = arith.constant 2 : i32
        %n = arith.index_cast %i : index to i32
        %sum = scf.for %j = %zero to %n step %one iter_args(%s = %zero) -> (i32) : i32 {
          %next = arith.addi %s, %j : i32
          scf.yield %next : i32
        }
        %odd = scf.while (%s = %sum) : (i32) -> i32 {
          %bit = arith.remsi %s, %two : i32
          %even = arith.cmpi eq, %bit, %zero : i32
          %positive = arith.cmpi sgt, %s, %zero : i32
          %again = arith.andi %even, %positive : i1
          scf.condition(%again) %s : i32
        } do {
        ^bb0(%s: i32):
          %half = arith.divsi %s, %two : i32
          scf.yield %half : i32
        }
        memref.store %odd, %y[%i] : memref<?xi32>
    """
    )
    (y,) = run_kernel(kernel_module(body, "%y: memref<?xi32>"), "k", [unwritten([128], np.int32)], [2])

    def expected(i: int) -> int:
        total = i * (i - 1) // 2
        while total > 0 and total % 2 == 0:
            total //= 2
        return total

    np.testing.assert_array_equal(y, [expected(i) for i in range(128)])


def test_branches_with_results() -> None:
    body = (
        GLOBAL_INDEX
        + """
        %two = arith.constant 2 : index
        %bit = arith.remui %i, %two : index
        %zero = arith.constant 0 : index
        %even = arith.cmpi eq, %bit, %zero : index
        %v = scf.if %even -> (index) { scf.yield %i : index } else {
          %negative = arith.subi %zero, %i : index
          scf.yield %negative : index
        }
        memref.store %v, %y[%i] : memref<?xindex>
    """
    )
    (y,) = run_kernel(kernel_module(body, "%y: memref<?xindex>"), "k", [unwritten([64], np.int64)], [1])
    i = np.arange(64)
    np.testing.assert_array_equal(y, np.where(i % 2 == 0, i, -i))


def test_unsigned_and_signed_integers() -> None:
    body = (
        GLOBAL_INDEX
        + """
        %a = memref.load %x[%i] : memref<?xi32>
        %three = arith.constant 3 : i32
        %unsigned = arith.divui %a, %three : i32
        %signed = arith.divsi %a, %three : i32
        %shifted = arith.shrui %unsigned, %three : i32
        %sum = arith.addi %shifted, %signed : i32
        memref.store %sum, %y[%i] : memref<?xi32>
    """
    )
    x = np.arange(-32, 32, dtype=np.int32)
    module = kernel_module(body, "%x: memref<?xi32>, %y: memref<?xi32>")
    _, y = run_kernel(module, "k", [x, unwritten([64], np.int32)], [1])
    signed = np.trunc(x / 3).astype(np.int32)
    np.testing.assert_array_equal(y, ((x.view(np.uint32) // 3) >> 3).view(np.int32) + signed)


def test_vectors_of_small_floats_and_inline_ptx() -> None:
    """Four bf16 at a time: 2 to the power of x, through hinted 64-bit accesses."""
    body = (
        GLOBAL_INDEX
        + """
        %n = arith.index_cast %i : index to i32
        %from = llvm.getelementptr %x[%n] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<4xbf16>
        %to = llvm.getelementptr %y[%n] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<4xbf16>
        %w = llvm.inline_asm has_side_effects "ld.global.cs.v2.b32 {$0, $1}, [$2];", "=r,=r,l" %from
          : (!llvm.ptr<1>) -> !llvm.struct<(i32, i32)>
        %w0 = llvm.extractvalue %w[0] : !llvm.struct<(i32, i32)>
        %w1 = llvm.extractvalue %w[1] : !llvm.struct<(i32, i32)>
        %r0 = llvm.bitcast %w0 : i32 to vector<2xbf16>
        %r1 = llvm.bitcast %w1 : i32 to vector<2xbf16>
        %e:2 = vector.to_elements %r0 : vector<2xbf16>
        %f:2 = vector.to_elements %r1 : vector<2xbf16>
        %all = vector.from_elements %e#0, %e#1, %f#0, %f#1 : vector<4xbf16>
        %wide = arith.extf %all : vector<4xbf16> to vector<4xf32>
        %v:4 = vector.to_elements %wide : vector<4xf32>
        %p0 = llvm.inline_asm "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v#0 : (f32) -> f32
        %p1 = llvm.inline_asm "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v#1 : (f32) -> f32
        %p2 = llvm.inline_asm "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v#2 : (f32) -> f32
        %p3 = llvm.inline_asm "ex2.approx.ftz.f32 $0, $1;", "=f,f" %v#3 : (f32) -> f32
        %q0 = llvm.inline_asm "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f" %p0, %p1 : (f32, f32) -> i32
        %q1 = llvm.inline_asm "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f" %p2, %p3 : (f32, f32) -> i32
        llvm.inline_asm has_side_effects "st.global.cs.v2.b32 [$0], {$1, $2};", "l,r,r" %to, %q0, %q1
          : (!llvm.ptr<1>, i32, i32) -> ()
    """
    )
    import ml_dtypes

    x = numbers(256).astype(ml_dtypes.bfloat16)
    _, y = run_kernel(kernel_module(body, POINTERS), "k", [x, unwritten([256], ml_dtypes.bfloat16)], [1])
    np.testing.assert_array_equal(y, np.exp2(x.astype(np.float64)).astype(ml_dtypes.bfloat16))


def test_atomic_additions() -> None:
    body = (
        C0
        + GLOBAL_INDEX
        + """
        %n = arith.index_cast %i : index to i32
        %old = memref.atomic_rmw addi %n, %y[%c0] : (i32, memref<?xi32>) -> i32
    """
    )
    (y,) = run_kernel(kernel_module(body, "%y: memref<?xi32>"), "k", [np.array([5], np.int32)], [2])
    assert y[0] == 5 + 127 * 128 // 2


def test_unknown_instruction_is_named() -> None:
    body = 'llvm.inline_asm has_side_effects "frobnicate.sync.b32 $0;", "r" %a : (i32) -> ()'
    with pytest.raises(NotImplementedError, match="frobnicate"):
        run_kernel(kernel_module(body, "%a: i32"), "k", [1], [1])


def test_host_program_with_views_and_two_launches() -> None:
    """y = x[2:] copied twice, the second time through a temporary."""
    module = ir.Module.parse(f"""
        module attributes {{gpu.container_module}} {{
          gpu.module @device {{
            gpu.func @k({X}, {Y}) kernel attributes {{known_block_size = array<i32: 64, 1, 1>}} {{
              {C0}{GLOBAL_INDEX}{COPY}
              gpu.return
            }}
          }}
          func.func @main(%x: memref<100xf32>) -> memref<98xf32> {{
            %c1 = arith.constant 1 : index
            %c2 = arith.constant 2 : index
            %c64 = arith.constant 64 : index
            %part = memref.subview %x[2] [98] [1] : memref<100xf32> to memref<98xf32, strided<[1], offset: 2>>
            %open = memref.cast %part : memref<98xf32, strided<[1], offset: 2>> to memref<?xf32, strided<[1], offset: ?>>
            %t = memref.alloc() : memref<98xf32>
            memref.copy %part, %t : memref<98xf32, strided<[1], offset: 2>> to memref<98xf32>
            %y = memref.alloc() : memref<98xf32>
            %from = memref.cast %t : memref<98xf32> to memref<?xf32>
            %to = memref.cast %y : memref<98xf32> to memref<?xf32>
            gpu.launch_func @device::@k blocks in (%c2, %c1, %c1) threads in (%c64, %c1, %c1)
              args(%from : memref<?xf32>, %to : memref<?xf32>)
            return %y : memref<98xf32>
          }}
        }}""")
    x = numbers(100)
    (y,) = run_plan(module, [x])
    np.testing.assert_array_equal(y, x[2:])


def test_assertion_of_the_host() -> None:
    module = ir.Module.parse("""
        module {
          func.func @main(%n: i64) {
            %zero = arith.constant 0 : i64
            %positive = arith.cmpi sgt, %n, %zero : i64
            cf.assert %positive, "n must be positive"
            return
          }
        }""")
    with pytest.raises(Fault, match="n must be positive"):
        run_plan(module, [-1])
