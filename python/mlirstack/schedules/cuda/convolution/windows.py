"""Convolutions of any rank as products: pixels under a window times weights.

Takes a :class:`KernelGraph` with one multiply-add reduction whose image is indexed by sums of loops (``oh * 2 + kh``);
leaves rows (output pixels), columns (features) and K (the window), and where each element of the image is.  Zeros around the
image, written by ops in front, become checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import ir
from mlirstack.schedules.cuda.convolution.image_axes import Axis, image_axes
from mlirstack.schedules.cuda.convolution.image_padding import Padding, padding_of
from mlirstack.schedules.cuda.graph import KernelGraph, Node, Operand
from mlirstack.schedules.cuda.product.contraction import Product, product_around
from mlirstack.schedules.cuda.product.contraction_loops import Body, Roles, known, multiply_add


@dataclass(frozen=True)
class WindowDigit:
    """One loop out of several that were collapsed to an index ``x``; its own index is ``(x // divisor) % size``.

    It adds ``stride`` elements to the address, and ``steps`` to the coordinate along each padded dimension.
    """

    divisor: int
    size: int
    stride: int
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Taps:
    """The positions of a window along one padded dimension: those of ``digit``, or a single one.

    ``first_bit``: number of the bit that stands for the first of them.
    """

    digit: WindowDigit | None
    first_bit: int

    @property
    def count(self) -> int:
        """How many there are."""
        return 1 if self.digit is None else self.digit.size


@dataclass(frozen=True)
class Window:
    """A factor whose element (row, k) is at the sum of what their digits add; K innermost last.

    ``value`` is the MLIR value, ``element`` its type; ``shift`` elements are subtracted from every address.  ``limits`` are
    the sizes along the padded dimensions, ``lows`` what is subtracted from the coordinates there.
    """

    value: Any
    element: Any
    signed: bool
    rows: int
    k: int
    row_digits: tuple[WindowDigit, ...]
    k_digits: tuple[WindowDigit, ...]
    batch_strides: tuple[int, ...]
    shift: int = 0
    limits: tuple[int, ...] = ()
    lows: tuple[int, ...] = ()

    @property
    def taps(self) -> tuple[Taps, ...]:
        """What to test along each padded dimension."""
        found, bit = [], 1  # bit 0 is for what lies beyond the last row or k
        for dimension in range(len(self.limits)):
            digits = [digit for digit in self.k_digits if digit.steps[dimension]]
            found.append(Taps(digits[0] if digits else None, bit))
            bit += found[-1].count
        return tuple(found)

    @property
    def is_testable(self) -> bool:
        """Does one digit of K move along each padded dimension, and do all taps fit the bits of an i32?"""
        single = all(sum(bool(digit.steps[d]) for digit in self.k_digits) <= 1 for d in range(len(self.limits)))
        return single and 1 + sum(taps.count for taps in self.taps) <= 31


@dataclass(frozen=True)
class WindowProduct:
    """A convolution: the product, the image and the weights; ``axes``: those of the image, where it can be seen so."""

    product: Product
    image: Window
    weights: Window
    axes: tuple[Axis, ...] | None = None


def match_window(graph: KernelGraph) -> WindowProduct | None:
    """``graph`` as a convolution; None where it is something else, depthwise, or has a size 0 or a dynamic size."""
    found = [node for node in graph.nodes if node.is_structured and node.reductions]
    if len(found) != 1 or not found[0].sizes or not all(found[0].sizes):
        return None
    node, body = found[0], multiply_add(found[0])
    if body is None:
        return None
    images = [number for number in range(2) if None in _dims_of_size(node.inputs[number])]
    if len(images) != 1:
        return None
    number = images[0]
    padding = padding_of(graph, node, number)
    if any(not t.is_static for n in graph.nodes if n.is_structured for o in (*n.inputs, *n.outputs) if (t := o.tensor)):
        return None
    linear = [_linear(operand, len(node.sizes)) for operand in node.inputs]
    roles = _roles(node, number, linear)
    if roles is None:
        return None
    absorbed = padding.nodes if padding is not None else ()
    product = product_around(graph, roles, body, absorbed)
    if product is None:
        return None
    windows = []
    for which, loops in ((number, roles.rows), (1 - number, roles.columns)):
        maps = linear[which]
        assert maps is not None
        windows.append(_window(node.inputs[which], maps, roles, loops, body, which, padding if which == number else None))
    if not windows[0].is_testable:
        return None
    image = node.inputs[number].tensor
    assert image is not None
    shape, lows = (padding.shape, padding.lows) if padding is not None else (known(image.shape), (0,) * len(image.shape))
    axes = image_axes(shape, linear[number] or (), known(node.sizes), roles.rows, roles.k, lows)
    return WindowProduct(product, windows[0], windows[1], axes)


Linear = tuple[tuple[int, ...], ...]  # per dimension of a tensor, the coefficient of each loop in its index


def _dims_of_size(operand: Operand) -> tuple[int | None, ...]:
    """The loops of the dimensions that are larger than 1."""
    if operand.tensor is None:
        return ()
    return tuple(d for d, size in zip(operand.dims, operand.tensor.shape, strict=True) if size != 1)


def _linear(operand: Operand, loops: int) -> Linear | None:
    """None where an index is not a sum of loops times constants, or falls as a loop rises."""
    if operand.tensor is None:
        return None
    rows = [_coefficients(expression, loops) for expression in operand.map.results]
    known_rows = tuple(row for row in rows if row is not None)
    return known_rows if len(known_rows) == len(rows) and all(c >= 0 for row in known_rows for c in row) else None


def _coefficients(expression: Any, loops: int) -> tuple[int, ...] | None:
    """The coefficient of each loop; None for anything but sums of loops times constants."""
    if isinstance(expression, ir.AffineDimExpr):
        return tuple(int(loop == expression.position) for loop in range(loops))
    if isinstance(expression, ir.AffineConstantExpr):
        return (0,) * loops if expression.value == 0 else None
    if not isinstance(expression, (ir.AffineAddExpr, ir.AffineMulExpr)):
        return None
    left = _coefficients(expression.lhs, loops)
    if isinstance(expression, ir.AffineMulExpr):
        if left is None or not isinstance(expression.rhs, ir.AffineConstantExpr):
            return None
        return tuple(c * expression.rhs.value for c in left)
    right = _coefficients(expression.rhs, loops)
    return None if left is None or right is None else tuple(a + b for a, b in zip(left, right, strict=True))


def _roles(node: Node, image: int, linear: Sequence[Linear | None]) -> Roles | None:
    """Loops that only the image has are rows, those that only the weights have columns, those that both have batches."""
    if None in linear:
        return None
    sizes = known(node.sizes)
    out = _element_strides(node.outputs[0])
    of_image, of_weights = (
        {loop for row in linear[number] or () for loop, c in enumerate(row) if c} for number in (image, 1 - image)
    )
    loops = [loop for loop, size in enumerate(sizes) if size != 1]
    written = sorted((d for d in loops if d not in node.reductions), key=lambda d: -out.get(d, 0))
    if any(d not in out for d in written):
        return None
    rows = tuple(d for d in written if d in of_image and d not in of_weights)
    columns = tuple(d for d in written if d in of_weights and d not in of_image)
    batches = tuple((d,) for d in written if d in of_weights and d in of_image)
    weights = linear[1 - image]
    assert weights is not None
    order = _strides(node.inputs[1 - image], weights)
    k = tuple(sorted((d for d in loops if d in node.reductions), key=lambda d: -order[d]))
    if any(d not in of_image or d not in of_weights for d in k) or not columns:
        return None
    return Roles(node, image, batches, rows, columns, k)


def _element_strides(operand: Operand) -> dict[int, int]:
    """Elements from one iteration to the next, of the loops that index a tensor's dimensions plainly."""
    assert operand.tensor is not None
    strides: dict[int, int] = {}
    step = 1
    for size, dim in zip(reversed(known(operand.tensor.shape)), reversed(operand.dims), strict=True):
        if dim is not None:
            strides[dim] = step
        step *= size
    return strides


def _strides(operand: Operand, linear: Linear, shape: Sequence[int] | None = None) -> list[int]:
    """Elements from one iteration of each loop to the next, in a tensor of ``shape``."""
    assert operand.tensor is not None
    sizes = known(operand.tensor.shape) if shape is None else shape
    strides, step = [0] * len(linear[0]) if linear else [], 1
    for size, row in zip(reversed(sizes), reversed(linear), strict=True):
        strides = [total + c * step for total, c in zip(strides, row, strict=True)]
        step *= size
    return strides


def _window(
    operand: Operand, linear: Linear, roles: Roles, rows: Sequence[int], body: Body, number: int, padding: Padding | None
) -> Window:
    assert operand.tensor is not None
    value, shape = operand.tensor.value, known(operand.tensor.shape)
    lows = (0,) * len(shape)
    outer = shape
    if padding is not None:
        value, shape, lows = padding.source, padding.shape, padding.lows
    strides = _strides(operand, linear, shape)
    padded = [d for d, size in enumerate(shape) if size != outer[d]]
    steps = {loop: tuple(linear[d][loop] for d in padded) for loop in range(len(strides))}

    def digits(loops: Sequence[int]) -> tuple[WindowDigit, ...]:
        return _digits(loops, known(roles.node.sizes), strides, steps)

    dims = [1] * len(shape)
    for d in reversed(range(len(shape) - 1)):
        dims[d] = dims[d + 1] * shape[d + 1]
    return Window(
        value, operand.tensor.element, body.signed[number], roles.size(rows), roles.size(roles.k), digits(rows),
        digits(roles.k), tuple(strides[group[-1]] for group in roles.batches),
        sum(low * dim for low, dim in zip(lows, dims, strict=True)), tuple(shape[d] for d in padded),
        tuple(lows[d] for d in padded),
    )  # fmt: skip


def _digits(
    loops: Sequence[int], sizes: Sequence[int], strides: Sequence[int], steps: dict[int, tuple[int, ...]]
) -> tuple[WindowDigit, ...]:
    """Digits of a group of loops (outermost first), neighbours merged where they are one loop."""
    digits: list[WindowDigit] = []
    divisor = 1
    for loop in reversed(loops):
        size, stride = sizes[loop], strides[loop]
        last = digits[0] if digits else None
        if last is not None and stride == last.size * last.stride and not any((*steps[loop], *last.steps)):
            digits[0] = WindowDigit(last.divisor, last.size * size, last.stride, last.steps)
        else:
            digits.insert(0, WindowDigit(divisor, size, stride, steps[loop]))
        divisor *= size
    return tuple(digits)
