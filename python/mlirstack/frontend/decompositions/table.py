"""Decompositions of ATen ops that torch.export applies before the graph is imported.

They start from torch-mlir's table and change it where its result would be worse than eager's: float32 models stay float32
(no float64 in variances), and sums over float16 and bfloat16 are accumulated in float32.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from mlirstack.bindings import fx_decomposition_table
from mlirstack.frontend.decompositions.activations import add_activation_decompositions
from mlirstack.frontend.decompositions.adaptive import add_adaptive_decompositions
from mlirstack.frontend.decompositions.attention import scaled_dot_product_attention
from mlirstack.frontend.decompositions.bilinear import add_bilinear_decompositions
from mlirstack.frontend.decompositions.bits import add_bit_decompositions
from mlirstack.frontend.decompositions.complex_functions import add_complex_function_decompositions
from mlirstack.frontend.decompositions.complex_numbers import add_complex_decompositions
from mlirstack.frontend.decompositions.corrected import add_corrected_decompositions
from mlirstack.frontend.decompositions.depthwise import add_depthwise_decompositions
from mlirstack.frontend.decompositions.distances import add_distance_decompositions
from mlirstack.frontend.decompositions.embedding_bags import add_embedding_bag_decompositions
from mlirstack.frontend.decompositions.empty_tensors import add_empty_decompositions
from mlirstack.frontend.decompositions.encoder_layer import add_encoder_decompositions
from mlirstack.frontend.decompositions.extend import Decomposition, extend
from mlirstack.frontend.decompositions.fused_attention import add_fused_attention_decompositions
from mlirstack.frontend.decompositions.fused_cells import add_fused_cell_decompositions
from mlirstack.frontend.decompositions.gradients import add_gradient_decompositions
from mlirstack.frontend.decompositions.grids import add_grid_decompositions
from mlirstack.frontend.decompositions.indexing import add_indexing_decompositions
from mlirstack.frontend.decompositions.integer_windows import add_integer_window_decompositions
from mlirstack.frontend.decompositions.integers import add_integer_decompositions
from mlirstack.frontend.decompositions.maxima import add_maxima_decompositions
from mlirstack.frontend.decompositions.norms import add_norm_decompositions
from mlirstack.frontend.decompositions.ordering import add_ordering_decompositions
from mlirstack.frontend.decompositions.padding import add_padding_decompositions
from mlirstack.frontend.decompositions.pairs import add_pair_decompositions
from mlirstack.frontend.decompositions.prims import add_prim_decompositions
from mlirstack.frontend.decompositions.real_division import add_real_division_decompositions
from mlirstack.frontend.decompositions.recurrent import mend_lstm_layers
from mlirstack.frontend.decompositions.scalar_operands import add_scalar_operand_decompositions
from mlirstack.frontend.decompositions.scalars import add_scalar_decompositions
from mlirstack.frontend.decompositions.scans import add_scan_decompositions
from mlirstack.frontend.decompositions.scatters import add_scatter_decompositions
from mlirstack.frontend.decompositions.selection import add_selection_decompositions
from mlirstack.frontend.decompositions.shifts import add_shift_decompositions
from mlirstack.frontend.decompositions.special_functions import add_special_function_decompositions
from mlirstack.frontend.decompositions.transposed import add_transposed_decompositions
from mlirstack.frontend.decompositions.truths import add_truth_decompositions
from mlirstack.frontend.decompositions.unsigned import add_unsigned_decompositions, compared_with
from mlirstack.frontend.decompositions.window_gradients import add_window_gradient_decompositions
from mlirstack.frontend.devices import with_constants_in_place
from mlirstack.frontend.half import HALF, accumulation
from mlirstack.frontend.literals import constant, wrapped

aten = torch.ops.aten

# Eager accumulates, or evaluates a formula of several steps, in float32; the dialects below would stay in half precision.
_IN_FLOAT32 = (
    aten.sum.default,
    aten.sum.dim_IntList,
    aten.mean.default,
    aten.mean.dim,
    aten.prod.default,
    aten.prod.dim_int,
    aten.cumsum.default,
    aten.cumprod.default,
    aten.index_add.default,
    aten.scatter_add.default,
    aten.scatter_reduce.two,
    aten.logsumexp.default,
    aten._softmax.default,
    aten._log_softmax.default,
    aten.linalg_vector_norm.default,
    aten.avg_pool2d.default,
    aten.avg_pool3d.default,
    aten._adaptive_avg_pool2d.default,
    aten._adaptive_avg_pool3d.default,
    aten.gelu.default,
    aten.silu.default,
    aten.mish.default,
    aten.elu.default,
    aten.sigmoid.default,
    aten.softplus.default,
)

# Eager compares in the dtype of the tensor; torch-mlir would compare in float64, which is slow and not the same.
_COMPARISONS = (
    (aten.eq.Scalar, aten.eq.Tensor),
    (aten.ne.Scalar, aten.ne.Tensor),
    (aten.lt.Scalar, aten.lt.Tensor),
    (aten.le.Scalar, aten.le.Tensor),
    (aten.gt.Scalar, aten.gt.Tensor),
    (aten.ge.Scalar, aten.ge.Tensor),
)


@functools.cache
def decomposition_table() -> dict[Any, Decomposition]:
    """The table for ``ExportedProgram.run_decompositions``: operator overload → decomposition."""
    mend_lstm_layers()
    given: dict[Any, Decomposition] = fx_decomposition_table()
    table = dict(given)
    for op in _IN_FLOAT32:
        extend(table, op, functools.partial(_in_float32, op))
    for with_scalar, with_tensor in _COMPARISONS:
        table[with_scalar] = _comparison(with_tensor)
    table[aten.addmm.default] = _addmm
    table[aten.addmv.default] = _addmv
    table[aten.addbmm.default] = _addbmm
    add_activation_decompositions(table)
    add_adaptive_decompositions(table)
    add_corrected_decompositions(table)
    add_embedding_bag_decompositions(table)
    add_integer_decompositions(table)
    add_complex_decompositions(table)
    add_complex_function_decompositions(table)
    add_grid_decompositions(table)
    add_indexing_decompositions(table)
    add_bit_decompositions(table)
    add_gradient_decompositions(table)
    add_empty_decompositions(table)
    add_encoder_decompositions(table)
    add_fused_attention_decompositions(table)
    add_fused_cell_decompositions(table)
    add_transposed_decompositions(table)
    add_depthwise_decompositions(table)
    add_distance_decompositions(table)
    add_integer_window_decompositions(table)
    add_maxima_decompositions(table)
    add_pair_decompositions(table)
    add_selection_decompositions(table)
    add_shift_decompositions(table)
    add_special_function_decompositions(table)
    add_norm_decompositions(table)
    add_ordering_decompositions(table)
    add_padding_decompositions(table)
    add_prim_decompositions(table)
    add_real_division_decompositions(table)
    add_bilinear_decompositions(table)
    add_unsigned_decompositions(table)
    add_window_gradient_decompositions(table)
    add_truth_decompositions(table)
    add_scalar_operand_decompositions(table)
    add_scan_decompositions(table)
    add_scatter_decompositions(table)
    add_scalar_decompositions(table)
    table.update(
        {
            aten.var.correction: _var,
            aten.var_mean.correction: _var_mean,
            aten.std.correction: _std,
            aten.std_mean.correction: _std_mean,
            aten.scaled_dot_product_attention.default: scaled_dot_product_attention,
            aten.isfinite.default: _isfinite,
            aten.reciprocal.default: _reciprocal,
            aten.roll.default: _roll,
            aten.threshold_backward.default: _threshold_backward,
            aten._trilinear.default: _trilinear,
            aten.conv_tbc.default: _conv_tbc,
            aten.upsample_nearest1d.vec: _upsample_nearest,
            aten.upsample_nearest2d.vec: _upsample_nearest,
            aten.upsample_nearest3d.vec: _upsample_nearest,
        }
    )
    return {op: rule if op in given and rule is given[op] else with_constants_in_place(rule) for op, rule in table.items()}


def _in_float32(op: Any, *args: Any, **kwargs: Any) -> Any:
    """``op`` computed in float32 if it takes half-precision tensors."""
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.dtype in HALF]
    if not tensors:
        return NotImplemented
    wanted = kwargs.pop("dtype", None) or tensors[0].dtype
    widened, options = pytree.tree_map(lambda x: x.float() if _is_half(x) else x, (args, kwargs))
    result = op(*widened, **options)
    return pytree.tree_map(lambda x: x.to(wanted) if isinstance(x, Tensor) and x.dtype == torch.float32 else x, result)


def _comparison(with_tensor: Any) -> Decomposition:
    def decomposition(x: Tensor, number: float) -> Any:
        if not isinstance(number, (int, float)) or x.is_complex():
            return NotImplemented
        if x.dtype == torch.bool and not isinstance(number, bool):
            dtype = torch.result_type(x, number)
            return with_tensor(x.to(dtype), constant(number, dtype, x.device))
        if x.dtype == torch.uint8:
            return with_tensor(*compared_with(x, number))
        if not x.is_floating_point() and not isinstance(number, float):
            cut = wrapped(number, torch.result_type(x, number))
            return NotImplemented if cut == number else with_tensor(x, torch.full((), cut, dtype=x.dtype, device=x.device))
        dtype = torch.result_type(x, number)
        return with_tensor(x.to(dtype), constant(number, dtype, x.device))

    return decomposition


def _isfinite(x: Tensor) -> Tensor:
    if x.is_complex():
        return _isfinite(x.real) & _isfinite(x.imag)
    if not x.is_floating_point():
        return torch.ones_like(x, dtype=torch.bool)
    return x.abs() < math.inf


def _reciprocal(x: Tensor) -> Tensor:
    """``1 / x``; torch-mlir's conversion of the reciprocal refuses zero and NaN when it runs."""
    return torch.ones((), dtype=torch.result_type(x, 1.0), device=x.device) / x


def _is_half(value: object) -> bool:
    return isinstance(value, Tensor) and value.dtype in HALF


def _addmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * bias + alpha * (a @ b)``; torch's own decomposition also multiplies by 1."""
    if not a.is_floating_point() and not a.is_complex():
        beta, alpha = int(beta), int(alpha)  # as eager cuts them
    if alpha != 1 or beta not in (0, 1):
        scaled: Tensor = _in_float32(aten.addmm.default, bias, a, b, beta=beta, alpha=alpha)
        if scaled is not NotImplemented:
            return scaled
    product = torch.mm(a, b)
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    return product + (bias if beta == 1 else bias * beta)


def _addmv(bias: Tensor, a: Tensor, x: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    column = bias if not bias.dim() else bias[:, None]
    return torch.addmm(column, a, x[:, None], beta=beta, alpha=alpha).squeeze(1)


def _addbmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """One product: the sum over matrices is that over their columns, side by side."""
    side_by_side = a.permute(1, 0, 2).reshape(a.size(1), a.size(0) * a.size(2))
    return torch.addmm(bias, side_by_side, b.reshape(b.size(0) * b.size(1), b.size(2)), beta=beta, alpha=alpha)


# ------------------------------------------------------------------------------------------------------------- variances


def _variance(
    x: Tensor, dim: Sequence[int] | None, correction: float | None, keepdim: bool
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Variance and mean in the accumulation dtype, by two passes: the mean, then the mean of squared distances from it.

    ``correction`` (default 1) is taken off the count.  A count that it uses up gives NaN or infinity, as in eager.
    """
    axes = [axis % max(x.dim(), 1) for axis in dim] if dim else list(range(x.dim()))
    wide = x.to(accumulation(x.dtype))
    count = math.prod([x.size(axis) for axis in axes]) if x.dim() else 1
    mean = wide.mean(axes, keepdim=True)
    distance = wide - mean
    squares = (distance * distance.conj()).real if x.is_complex() else distance * distance
    divisor = count - (1 if correction is None else correction)
    total = squares.sum(axes, keepdim=keepdim)
    variance = total / (divisor if _positive(divisor) else 0)
    return variance, mean if keepdim or not x.dim() else mean.squeeze(axes)


def _positive(number: Any) -> bool:
    """Is a count above zero?  One that depends on dynamic dimensions is taken to be."""
    return not isinstance(number, (int, float)) or number > 0


def _var(x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    return _variance(x, dim, correction, keepdim)[0].to(_real(x.dtype))


def _var_mean(
    x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    variance, mean = _variance(x, dim, correction, keepdim)
    return variance.to(_real(x.dtype)), mean.to(x.dtype)


def _std(x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    return _variance(x, dim, correction, keepdim)[0].sqrt().to(_real(x.dtype))


def _std_mean(
    x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    variance, mean = _variance(x, dim, correction, keepdim)
    return variance.sqrt().to(_real(x.dtype)), mean.to(x.dtype)


def _real(dtype: torch.dtype) -> torch.dtype:
    return dtype.to_real() if dtype.is_complex else dtype


# ------------------------------------------------------------------------------------------------------------- upsampling


def _upsample_nearest(x: Tensor, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None) -> Any:
    """Repeats each element where every size grows by a whole factor; other sizes are left to the back ends."""
    sizes = list(x.shape[2:])
    if output_size is not None:
        wanted = list(output_size)
    else:
        assert scale_factors is not None
        wanted = [int(size * scale) for size, scale in zip(sizes, scale_factors, strict=True)]
    if not all(isinstance(n, int) for n in (*sizes, *wanted)) or any(w % n for n, w in zip(sizes, wanted, strict=True)):
        return NotImplemented
    apart = list(x.shape[:2])
    repeated = list(x.shape[:2])
    for size, result in zip(sizes, wanted, strict=True):
        apart += [size, 1]
        repeated += [size, result // size]
    return x.reshape(apart).expand(repeated).reshape([*x.shape[:2], *wanted])


# ------------------------------------------------------------- ops that torch or torch-mlir gives a wrong shape or dtype


def _roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    """Turned by less than a whole turn, forwards, and not by nothing; torch-mlir's conversion takes any other number for a
    place, and joins an empty slice that it calls a whole one."""
    if not dims:
        return aten.roll.default(x.flatten(), shifts, [0]).reshape(x.shape)
    sizes = [x.shape[dim] for dim in dims]
    whole = all(isinstance(n, int) for n in (*sizes, *shifts))
    if not whole or all(0 < shift < size for shift, size in zip(shifts, sizes, strict=True)):
        return NotImplemented
    turns = [(shift % max(size, 1), dim) for shift, size, dim in zip(shifts, sizes, dims, strict=True)]
    turned = [(shift, dim) for shift, dim in turns if shift]
    return aten.roll.default(x, [shift for shift, _ in turned], [dim for _, dim in turned]) if turned else x.clone()


def _threshold_backward(gradient: Tensor, x: Tensor, threshold: float) -> Tensor:
    """The gradient where ``x`` is above the threshold; torch's metadata misses the promotion of mixed dtypes."""
    return torch.where(x <= threshold, 0, gradient).to(torch.result_type(gradient, x))


def _trilinear(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Any:
    """The product of three tensors, each with dimensions of size one put in, summed over ``sumdim``."""
    product = _with_dimensions(a, expand1) * _with_dimensions(b, expand2) * _with_dimensions(c, expand3)
    if all(unroll_dim in expanded for expanded in (expand1, expand2, expand3)):
        # Eager's loop goes over a dimension that no operand has: it makes no step, and the result is empty there.
        kept = [(axis, size) for axis, size in enumerate(product.shape) if axis not in sumdim]
        return product.new_zeros([0 if axis == unroll_dim else size for axis, size in kept])
    return product.sum(list(sumdim)) if sumdim else product


def _with_dimensions(x: Tensor, dimensions: Sequence[int]) -> Tensor:
    for dimension in sorted(dimensions):
        x = x.unsqueeze(dimension)
    return x


def _conv_tbc(x: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """A 1-d convolution over ``[time, batch, channels]`` with weights ``[time, in, out]``."""
    y = torch.conv1d(x.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return y.permute(2, 0, 1)
