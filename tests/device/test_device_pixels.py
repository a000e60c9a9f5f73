"""The copy engine finds pixels under a window (im2col mode): what it brings, against windows that torch cuts out."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from cuda_programs import executable
from torch.nn import functional as F

from mlirstack.frontend.program import ResultSpec
from mlirstack.passes.cuda.plan import Argument, Buffer, Input, Launch, PlannedFunction, ResultRef, TensorMap
from mlirstack.targets.cuda.driver import Driver

CHANNELS, PIXELS = 8, 32  # of a load: 32 bytes of f32 by 32 rows
TAPS = 3

# copy_pixels: 32 pixels by the tensor map `pixels`, from channel 0 of the first one and a tap, to destination; 256 threads.
KERNEL = """\
.version 8.0
.target sm_90
.address_size 64

.visible .entry copy_pixels(.param .align 64 .b8 pixels[128], .param .u64 destination, .param .u32 width, .param .u32 height,
                            .param .u32 image, .param .u32 tap_width, .param .u32 tap_height)
{
    .reg .pred %p<2>;
    .reg .b16 %h<2>;
    .reg .b32 %r<12>;
    .reg .b64 %d<4>;
    .reg .f32 %f;
    .shared .align 128 .b8 values[1024];
    .shared .align 8 .b64 arrived;
    mov.b64 %d0, pixels;
    cvta.param.u64 %d0, %d0;
    ld.param.u64 %d1, [destination];
    ld.param.u32 %r0, [width];
    ld.param.u32 %r1, [height];
    ld.param.u32 %r7, [image];
    ld.param.u32 %r8, [tap_width];
    ld.param.u32 %r9, [tap_height];
    cvt.u16.u32 %h0, %r8;
    cvt.u16.u32 %h1, %r9;
    mov.u32 %r10, 0;
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, values;
    mov.u32 %r4, arrived;
    setp.ne.u32 %p0, %r2, 0;
    @%p0 bra loaded;
    mbarrier.init.shared::cta.b64 [%r4], 1;
    fence.proxy.async.shared::cta;
    mbarrier.arrive.expect_tx.shared::cta.b64 %d2, [%r4], 1024;
    cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes
        [%r3], [%d0, {%r10, %r0, %r1, %r7}], [%r4], {%h0, %h1};
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


@dataclass(frozen=True)
class Images:
    """Images (count, height, width, channels) of f32 under a window of 3 x 3."""

    count: int
    height: int
    width: int
    channels: int
    stride: int
    padding: int
    dilation: int

    def pixels(self, size: int) -> int:
        """Positions of the window along a dimension."""
        return (size + 2 * self.padding - self.dilation * (TAPS - 1) - 1) // self.stride + 1

    def tensor_map(self) -> TensorMap:
        """Over the first taps of all pixels."""
        sizes = (self.channels, self.width, self.height, self.count)
        row = 4 * self.channels
        strides = (row, row * self.width, row * self.width * self.height)
        upper = tuple(
            (self.pixels(size) - 1) * self.stride - self.padding - (size - 1) for size in (self.width, self.height)
        )
        steps, lower = (1, self.stride, self.stride, 1), (-self.padding,) * 2
        return TensorMap("f32", sizes, strides, (CHANNELS, PIXELS), 0, steps, lower=lower, upper=upper)

    def program(self, first: int, tap: tuple[int, int]) -> PlannedFunction:
        """Copy 32 pixels from number ``first`` on, each moved by the tap (row, column)."""
        rest, column = divmod(first, self.pixels(self.width))
        image, row = divmod(rest, self.pixels(self.height))
        numbers = (
            column * self.stride - self.padding, row * self.stride - self.padding, image,
            tap[1] * self.dilation, tap[0] * self.dilation,
        )  # fmt: skip
        values = (Argument("i32", value=number) for number in numbers)
        shape = (self.count, self.height, self.width, self.channels)
        size = 4 * self.count * self.height * self.width * self.channels
        return PlannedFunction(
            "main",
            (Input("f32", shape, "argument", 0),),
            (Buffer("input", size), Buffer("result", 1024, "f32", (PIXELS, CHANNELS))),
            (
                Launch(
                    "copy_pixels",
                    (1, 1, 1),
                    (256, 1, 1),
                    (Argument("tensor_map", 0, 0, self.tensor_map()), Argument("pointer", 1), *values),
                ),
            ),
            (ResultRef(1),),
        )

    def expected(self, x: torch.Tensor, first: int, tap: tuple[int, int]) -> torch.Tensor:
        """What the copy must bring."""
        padded = F.pad(x, (0, 0, *(self.padding,) * 4))
        starts = [offset * self.dilation for offset in tap]
        sizes = (self.height, self.width)
        ends = [start + (self.pixels(s) - 1) * self.stride + 1 for start, s in zip(starts, sizes, strict=True)]
        cut = padded[:, starts[0] : ends[0] : self.stride, starts[1] : ends[1] : self.stride].reshape(-1, self.channels)
        beyond = torch.zeros(PIXELS, self.channels, device=x.device)
        return torch.cat([cut, beyond])[first : first + PIXELS, :CHANNELS]


@pytest.mark.parametrize(
    "images",
    [
        Images(3, 5, 7, 8, stride=1, padding=1, dilation=1),
        Images(2, 9, 8, 12, stride=2, padding=1, dilation=1),
        Images(4, 8, 6, 8, stride=1, padding=2, dilation=2),
        Images(3, 11, 9, 8, stride=3, padding=0, dilation=1),
    ],
    ids=["padded", "stride 2", "dilated", "stride 3"],
)
def test_pixels_under_a_window(driver: Driver, images: Images) -> None:
    if driver.capability < (9, 0):
        pytest.skip("bulk tensor copies need compute capability 9.0")
    shape = (images.count, images.height, images.width, images.channels)
    x = torch.randn(shape, device="cuda", generator=torch.Generator(device="cuda").manual_seed(0))
    total = images.count * images.pixels(images.height) * images.pixels(images.width)
    for first in {0, 5, total // 2, total - 3}:
        for tap in ((0, 0), (1, 2), (2, 0), (2, 2)):
            loaded = executable(
                driver, images.program(first, tap), (ResultSpec((PIXELS, CHANNELS), "float32"),), code=KERNEL
            )
            assert torch.equal(loaded.run([x])[0], images.expected(x, first, tap)), (first, tap)
