"""Small programs for a real GPU: kernels as PTX text, plans written by hand, and what it takes to load them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from cuda_fake import signature, tensor

from mlirstack.frontend.program import ArgumentSpec, ResultSpec
from mlirstack.passes.cuda.plan import (
    Argument,
    Buffer,
    Check,
    Copy,
    Fill,
    Input,
    Launch,
    LaunchPlan,
    PlannedFunction,
    ResultRef,
    TensorMap,
)
from mlirstack.pipeline.tool import run_tool
from mlirstack.targets.callable import CompiledFunction
from mlirstack.targets.cuda.driver import Driver
from mlirstack.targets.cuda.executable import CudaExecutable

# scale: destination[i] = source[i] * factor for i < count.
# scale_shared: the same through dynamic shared memory, the last word that it was launched with.
# positive: flag = source[0] > 0.
# spin: waits for so many nanoseconds.
KERNELS = """\
.version 7.0
.target sm_80
.address_size 64

.extern .shared .align 16 .b8 dynamic[];

.visible .entry scale(.param .u64 source, .param .u64 destination, .param .u64 count, .param .f32 factor)
{
    .reg .pred %p;
    .reg .b32 %r<4>;
    .reg .b64 %d<6>;
    .reg .f32 %f<3>;
    ld.param.u64 %d0, [source];
    ld.param.u64 %d1, [destination];
    ld.param.u64 %d2, [count];
    ld.param.f32 %f0, [factor];
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %tid.x;
    mad.lo.s32 %r3, %r0, %r1, %r2;
    cvt.u64.u32 %d3, %r3;
    setp.ge.u64 %p, %d3, %d2;
    @%p bra done;
    shl.b64 %d4, %d3, 2;
    add.u64 %d5, %d0, %d4;
    ld.global.f32 %f1, [%d5];
    mul.f32 %f2, %f1, %f0;
    add.u64 %d5, %d1, %d4;
    st.global.f32 [%d5], %f2;
done:
    ret;
}

.visible .entry scale_shared(.param .u64 source, .param .u64 destination, .param .u32 last, .param .f32 factor)
{
    .reg .b32 %r<3>;
    .reg .b64 %d<4>;
    .reg .f32 %f<3>;
    ld.param.u64 %d0, [source];
    ld.param.u64 %d1, [destination];
    ld.param.u32 %r0, [last];
    ld.param.f32 %f0, [factor];
    mov.u32 %r1, dynamic;
    add.u32 %r1, %r1, %r0;
    ld.global.f32 %f1, [%d0];
    mul.f32 %f1, %f1, %f0;
    st.shared.f32 [%r1], %f1;
    ld.shared.f32 %f2, [%r1];
    st.global.f32 [%d1], %f2;
    ret;
}

.visible .entry positive(.param .u64 source, .param .u64 flag)
{
    .reg .pred %p;
    .reg .b32 %r<2>;
    .reg .b64 %d<2>;
    .reg .f32 %f;
    ld.param.u64 %d0, [source];
    ld.param.u64 %d1, [flag];
    ld.global.f32 %f, [%d0];
    setp.gt.f32 %p, %f, 0f00000000;
    selp.u32 %r0, 1, 0, %p;
    st.global.u8 [%d1], %r0;
    ret;
}

.visible .entry spin(.param .u64 nanoseconds)
{
    .reg .pred %p;
    .reg .b64 %d<4>;
    ld.param.u64 %d0, [nanoseconds];
    mov.u64 %d1, %globaltimer;
again:
    mov.u64 %d2, %globaltimer;
    sub.u64 %d3, %d2, %d1;
    setp.lt.u64 %p, %d3, %d0;
    @%p bra again;
    ret;
}
"""

# copy_tile: one 32 x 8 tile of f32 by the tensor map `tile`, from column and row, to destination; 256 threads.
TILE_KERNEL = """\
.version 8.0
.target sm_90
.address_size 64

.visible .entry copy_tile(.param .align 64 .b8 tile[128], .param .u64 destination, .param .u32 column, .param .u32 row)
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .b64 %d<4>;
    .reg .f32 %f;
    .shared .align 128 .b8 values[1024];
    .shared .align 8 .b64 arrived;
    mov.b64 %d0, tile;
    cvta.param.u64 %d0, %d0;
    ld.param.u64 %d1, [destination];
    ld.param.u32 %r0, [column];
    ld.param.u32 %r1, [row];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, values;
    mov.u32 %r4, arrived;
    setp.ne.u32 %p0, %r2, 0;
    @%p0 bra loaded;
    mbarrier.init.shared::cta.b64 [%r4], 1;
    fence.proxy.async.shared::cta;
    mbarrier.arrive.expect_tx.shared::cta.b64 %d2, [%r4], 1024;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r3], [%d0, {%r0, %r1}], [%r4];
loaded:
    bar.sync 0;
again:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 0;
    @!%p1 bra again;
    shl.b32 %r5, %r2, 2;
    add.u32 %r6, %r3, %r5;
    ld.shared.f32 %f, [%r6];
    cvt.u64.u32 %d3, %r5;
    add.u64 %d3, %d1, %d3;
    st.global.f32 [%d3], %f;
    ret;
}
"""

COUNT = 4096  # elements of the programs below
SIZE = 4 * COUNT
ROW = ResultSpec((COUNT,), "float32")
X = Input("f32", (COUNT,), "argument", 0)


def scale(source: int, destination: int, factor: float = 2.0, count: Any = COUNT) -> Launch:
    """Launch the kernel of that name on buffers."""
    grid = (["ceildiv", count, 256] if isinstance(count, list) else -(-count // 256), 1, 1)
    arguments = (
        Argument("pointer", source),
        Argument("pointer", destination),
        Argument("i64", value=count),
        Argument("f32", value=factor),
    )
    return Launch("scale", grid, (256, 1, 1), arguments)


def spin(nanoseconds: int) -> Launch:
    """Let the stream wait."""
    return Launch("spin", (1, 1, 1), (1, 1, 1), (Argument("i64", value=nanoseconds),))


DOUBLE = PlannedFunction(
    "main", (X,), (Buffer("input", SIZE), Buffer("result", SIZE, "f32", (COUNT,))), (scale(0, 1),), (ResultRef(1),)
)

# Fourteen steps through two temporaries: y = 2^10 x; everything in the arena is overwritten behind its last use.
CHAIN = PlannedFunction(
    "main",
    (X,),
    (
        Buffer("input", SIZE),
        Buffer("temporary", SIZE, offset=0),
        Buffer("temporary", SIZE, offset=SIZE),
        Buffer("result", SIZE, "f32", (COUNT,)),
    ),
    (
        scale(0, 1),
        *(scale(1 + i % 2, 2 - i % 2) for i in range(8)),
        Copy(1, 2, SIZE),
        Fill(1, SIZE, 0x7FC00000, 4),
        scale(2, 3),
        Fill(2, SIZE, 255),
        Fill(1, SIZE, 0xABCD, 2),
    ),
    (ResultRef(3),),
    arena_bytes=2 * SIZE,
    unshared_bytes=2 * SIZE,
)

# A check in the middle: x[0] > 0, then a long wait.
CHECKED = PlannedFunction(
    "main",
    (X,),
    (
        Buffer("input", SIZE),
        Buffer("temporary", 256, offset=0),
        Buffer("result", SIZE, "f32", (COUNT,)),
    ),
    (
        Launch("positive", (1, 1, 1), (1, 1, 1), (Argument("pointer", 0), Argument("pointer", 1))),
        Check("x[0] must be positive", 1),
        Fill(1, 1, 0),
        scale(0, 2),
        spin(300_000_000),
    ),
    (ResultRef(2),),
    arena_bytes=256,
)


def executable(
    driver: Driver,
    function: PlannedFunction,
    results: Sequence[ResultSpec] = (ROW,),
    arguments: Sequence[ArgumentSpec] | None = None,
    *,
    code: str | bytes = KERNELS,
) -> CudaExecutable:
    """``function`` loaded, by default with all arguments tensors of its inputs' shapes."""
    image = code.encode() if isinstance(code, str) else code
    major, minor = driver.capability
    plan = LaunchPlan(f"sm_{major}{minor}", (function,), ())
    return CudaExecutable(plan, image, signature(arguments_of(function, arguments), results), {}, driver)


def program(driver: Driver, function: PlannedFunction, results: Sequence[ResultSpec] = (ROW,)) -> CompiledFunction:
    """The same as a user calls it; returns a tuple."""
    return CompiledFunction(executable(driver, function, results), signature(arguments_of(function, None), results), {})


def arguments_of(function: PlannedFunction, given: Sequence[ArgumentSpec] | None) -> Sequence[ArgumentSpec]:
    """One tensor argument per input."""
    if given is not None:
        return given
    shapes = [["n" if size is None else size for size in value.shape or ()] for value in function.inputs]
    return [tensor(f"x{i}", shape, i) for i, shape in enumerate(shapes)]


def tile_program(columns: int, rows: int, column: int, row: int) -> PlannedFunction:
    """Copy a tile of a row-major matrix of f32."""
    tile = TensorMap("f32", (columns, rows), (4 * columns,), (32, 8), swizzle=0)
    arguments = (
        Argument("tensor_map", 0, 0, tile),
        Argument("pointer", 1),
        Argument("i32", value=column),
        Argument("i32", value=row),
    )
    return PlannedFunction(
        "main",
        (Input("f32", (rows, columns), "argument", 0),),
        (Buffer("input", 4 * rows * columns), Buffer("result", 1024, "f32", (8, 32))),
        (Launch("copy_tile", (1, 1, 1), (256, 1, 1), arguments),),
        (ResultRef(1),),
    )


def assembled(ptxas: Path, text: str, arch: str, directory: Path) -> bytes:
    """The cubin of PTX text."""
    (directory / "kernels.ptx").write_text(text)
    command = [str(ptxas), f"-arch={arch}", "kernels.ptx", "-o", "kernels.cubin"]
    tool = run_tool(command, directory=directory, timeout=60)
    assert tool.failure is None, tool.stderr
    return (directory / "kernels.cubin").read_bytes()


def numbers(seed: int = 0) -> torch.Tensor:
    """Random input of the programs, on the current device; the first element is positive."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    x = torch.randn(COUNT, device="cuda", generator=generator)
    x[0] = 1.0
    return x
