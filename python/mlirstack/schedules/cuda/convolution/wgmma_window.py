"""Convolutions on Hopper with both factors brought by the copy engine, which finds the pixels under a window by itself.

Takes a ``WindowProduct``, leaves tensor maps and a producer for the warp-specialised
product of ``wgmma_kernel``.  A step of K is one tap of the window and 128 bytes of channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from mlirstack.bindings import dialect
from mlirstack.schedules.cuda.convolution.image_axes import Axis
from mlirstack.schedules.cuda.convolution.windows import WindowProduct
from mlirstack.schedules.cuda.graph import Tensor
from mlirstack.schedules.cuda.instructions import warpgroup
from mlirstack.schedules.cuda.instructions.tensor_core import Operands
from mlirstack.schedules.cuda.kernel import TensorMapLayout
from mlirstack.schedules.cuda.product.contraction import Contraction, Matrix, Product
from mlirstack.schedules.cuda.product.contraction_loops import known
from mlirstack.schedules.cuda.values import Int
from mlirstack.schedules.cuda.wgmma.reach import loadable
from mlirstack.schedules.cuda.wgmma.wgmma_block import WgmmaBlock
from mlirstack.schedules.cuda.wgmma.wgmma_maps import factor_map, tensor_map_element
from mlirstack.schedules.cuda.wgmma.wgmma_producer import Producer, Source
from mlirstack.schedules.cuda.wgmma.wgmma_tile import WgmmaProblem

_STRIDE_BYTES = 16  # what the copy engine asks of every stride
_MAX_STEP = 8  # pixels from one that is read to the next
_WINDOW_BITS = 16  # for corners and taps of all spatial dimensions together


@dataclass(frozen=True)
class WindowCopies:
    """How the copy engine brings an image (images, spatial dimensions, channels) and weights (features, taps, channels), or
    (taps, channels, features).

    ``spatial``: outermost dimension first.
    """

    match: WindowProduct
    operands: Operands
    images: int
    spatial: tuple[Axis, ...]
    channels: int

    @property
    def step_channels(self) -> int:
        """Channels of a step of K: 128 bytes."""
        return warpgroup.SWIZZLE * 8 // self.operands.bits

    @property
    def blocks(self) -> int:
        """Steps of K for one tap."""
        return -(-self.channels // self.step_channels)

    @property
    def taps(self) -> int:
        """Taps of the window."""
        total = 1
        for axis in self.spatial:
            total *= axis.taps
        return total

    @property
    def padded_k(self) -> int:
        """K with every tap's channels padded to whole steps."""
        return self.taps * self.blocks * self.step_channels

    def contraction(self) -> Contraction:
        """The product of the pixels' matrix, which is nowhere, and the weights; K padded to whole steps."""
        match, product = self.match, self.match.product
        image, weights = (_tensor(window.value, window.element) for window in (match.image, match.weights))
        a = Matrix(image, product.m, self.channels, 1, ())
        strides = (match.weights.row_digits[0].stride, match.weights.k_digits[0].stride)
        b = Matrix(weights, product.n, *strides, ())
        shared = {field.name: getattr(product, field.name) for field in fields(Product)} | {"k": self.padded_k}
        return Contraction(**shared, a=a, b=b)

    def factor_bytes(self) -> int:
        """Bytes of image and weights."""
        pixels = self.images
        for axis in self.spatial:
            pixels *= min(axis.size, axis.pixels * axis.taps)
        return (pixels * self.channels + self.match.product.n * self.match.product.k) * self.operands.bits // 8

    def tensor_maps(self, problem: WgmmaProblem) -> Sequence[TensorMapLayout]:
        """Those of the image and of the weights."""
        tile, size = problem.tile, self.operands.bits // 8
        pixels = tile.rows // (2 if tile.shares_left else 1)
        features = tile.columns // (2 if tile.shares_right else 1)
        sizes = [self.channels, *(axis.size for axis in reversed(self.spatial)), self.images]
        strides = [self.channels * size]
        for count in sizes[1:-1]:
            strides.append(strides[-1] * count)
        inner = list(reversed(self.spatial))
        image = TensorMapLayout(
            tensor_map_element(self.operands), tuple(sizes), tuple(strides), (self.step_channels, pixels),
            element_strides=(1, *(axis.stride for axis in inner), 1), lower=tuple(-axis.low for axis in inner),
            upper=tuple(axis.upper for axis in inner),
        )  # fmt: skip
        if not problem.right.k_major:
            return image, factor_map(problem, problem.right, tile.columns, shared_by_two=tile.shares_right)
        weights = TensorMapLayout(
            tensor_map_element(self.operands), (self.channels, self.taps, self.match.product.n),
            (self.channels * size, self.channels * self.taps * size), (self.step_channels, 1, features),
        )  # fmt: skip
        return image, weights

    def producer(self, block: WgmmaBlock, maps: Sequence[Any]) -> Producer:
        """What keeps the ring full."""
        return WindowProducer(block, maps, self)


class WindowProducer(Producer):
    """Copies pixels under the taps of a window, and the taps' weights."""

    def __init__(self, block: WgmmaBlock, maps: Sequence[Any], copies: WindowCopies) -> None:
        super().__init__(block, maps)
        self._copies = copies

    def _copy(self, source: Source, stage: Int, step: Int, row: Int, axes: Sequence[Int]) -> None:
        """One factor's part of a stage."""
        block, copies = self._block, self._copies
        if not source.matrix.k_major:
            super()._copy(source, stage, step, row, axes)
            return
        target = stage * block.problem.stage_bytes + source.offset
        if source.shared:  # this block's half of the rows, for both blocks
            rows = source.rows // 2
            row = row + source.shared.half * rows
            target = target + source.shared.half * (rows * warpgroup.SWIZZLE)
        tap, channel = step // copies.blocks, step % copies.blocks * copies.step_channels
        barrier = block.ring.full(stage)
        if source is self._left:
            self._load(source, target, [channel, *self._pixel(row)], barrier, self._offsets(tap))
        else:
            self._load(source, target, [channel, tap, row], barrier)

    def _pixel(self, row: Int) -> list[Int]:
        """Where the first tap of output pixel ``row`` is in the image, and the image's number; innermost first."""
        place: list[Int] = []
        for axis in reversed(self._copies.spatial):
            place.append(row % axis.pixels * axis.stride - axis.low)
            row = row // axis.pixels
        return [*place, row]

    def _offsets(self, tap: Int) -> list[Int]:
        """How far tap ``tap`` is from the first one; innermost first, i16."""
        kernel = self._block.kernel
        found: list[Int] = []
        for axis in reversed(self._copies.spatial):
            distance = tap % axis.taps * axis.dilation
            found.append(Int(dialect("arith").TruncIOp(kernel.i16, distance.value).result))
            tap = tap // axis.taps
        return found


def window_copies(match: WindowProduct, operands: Operands) -> WindowCopies | None:
    """How the copy engine brings the factors of a convolution; None where it cannot."""
    axes = match.axes
    if axes is None or len(axes) < 2 or match.product.batches:
        return None
    if len(match.weights.row_digits) != 1 or len(match.weights.k_digits) != 1:
        return None
    if axes[0].taps > 1 or axes[0].low or axes[0].pixels != axes[0].size:
        axes = (Axis(1, 1, 1, 1, 1, 0), *axes)  # a single image, whose dimension was left out
    images, *spatial, channels = axes
    whole = channels == Axis(channels.size, 1, 1, channels.size, 1, 0) and images.stride == 1
    if not whole or channels.size * operands.bits // 8 % _STRIDE_BYTES or not 1 <= len(spatial) <= 3:
        return None
    if not all(_is_within_reach(axis, len(spatial)) for axis in spatial):
        return None
    copies = WindowCopies(match, operands, images.size, tuple(spatial), channels.size)
    weights = copies.contraction().b
    if weights.k_major:  # taps are a dimension of their own
        return copies if weights.row_stride == match.product.k else None
    return copies if loadable(weights, operands) and copies.padded_k == match.product.k else None


def _is_within_reach(axis: Axis, spatial: int) -> bool:
    """Does a tensor map hold these steps, corners and taps?"""
    bits = _WINDOW_BITS // spatial
    corners = all(-(1 << (bits - 1)) <= corner < 1 << (bits - 1) for corner in (-axis.low, axis.upper))
    return corners and axis.stride <= _MAX_STEP and (axis.taps - 1) * axis.dilation < 1 << bits


def _tensor(value: Any, element: Any) -> Tensor:
    kind = value.type
    return Tensor(value, known(tuple(kind.shape)), element)
