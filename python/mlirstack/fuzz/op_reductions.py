"""Operations over whole dimensions: sums and extrema, softmax and norms, scans, sorting, products of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from mlirstack.fuzz.operations import Arguments, Operation, Picker, Value


def _numbers(pick: Picker, rank: int = 0) -> Value:
    """Anything but truth values, not empty."""
    found = pick.value(lambda value: value.dtype != "bool" and value.rank >= rank and 0 not in value.shape)
    return found or pick.fresh([max(pick.one_of(pick.sizes), 1) for _ in range(rank)], pick.main_dtype)


def _over_dims(pick: Picker) -> Arguments:
    value = pick.value(lambda value: value.dtype != "bool" and value.rank >= 1) or _numbers(pick, 1)
    return Arguments((value,), {"dims": pick.dims(value), "keep": pick.chance(40)})


def _floats_over_dims(pick: Picker) -> Arguments:
    value = pick.floats(1)
    return Arguments((value,), {"dims": pick.dims(value), "keep": pick.chance(40)})


def _over_dims_not_empty(pick: Picker) -> Arguments:
    value = _numbers(pick, 1)
    return Arguments((value,), {"dims": pick.dims(value), "keep": pick.chance(40)})


def _over_dim(pick: Picker) -> Arguments:
    value = _numbers(pick, 1)
    return Arguments((value,), {"dim": pick.dim(value)})


def _along(pick: Picker) -> Arguments:
    value = pick.floats(1)
    return Arguments((value,), {"dim": pick.dim(value)})


def _scan(pick: Picker) -> Arguments:
    value = pick.value(lambda value: value.rank >= 1 and value.dtype != "bool") or _numbers(pick, 1)
    return Arguments((value,), {"dim": pick.dim(value)})


def _top(pick: Picker) -> Arguments:
    value = _numbers(pick, 1)
    dim = pick.dim(value)
    return Arguments((value,), {"count": pick.integer(1, value.shape[dim]), "dim": dim, "largest": pick.chance(60)})


def _sorted(pick: Picker) -> Arguments | None:
    value = pick.value(lambda value: value.rank >= 1 and value.dtype != "bool" and max(value.shape) <= 8)
    if value is None:
        return None
    return Arguments((value,), {"dim": pick.dim(value), "descending": pick.chance(40)})


def _matmul(pick: Picker) -> Arguments:
    left = pick.floats(1)
    inner = left.shape[-1]
    columns = pick.one_of(pick.sizes)
    fits = [value for value in pick.values if value.dtype == left.dtype and value.rank == 2 and value.shape[0] == inner]
    if fits and pick.chance(60):
        return Arguments((left, pick.one_of(fits)))
    return Arguments((left, pick.fresh((inner, columns), left.dtype)))


def _linear(pick: Picker) -> Arguments:
    left = pick.floats(1)
    columns = pick.one_of(pick.sizes)
    weight = pick.fresh((columns, left.shape[-1]), left.dtype, parameter=True)
    return Arguments((left, weight, pick.fresh((columns,), left.dtype, parameter=True)))


def _batched(pick: Picker) -> Arguments:
    left = pick.floats(3)
    columns = pick.one_of(pick.sizes)
    return Arguments((left, pick.fresh((*left.shape[:-2], left.shape[-1], columns), left.dtype)))


def _own_product(pick: Picker) -> Arguments:
    return Arguments((pick.floats(2),))


def _layer_norm(pick: Picker) -> Arguments:
    value = pick.floats(1)
    weights = [pick.fresh(value.shape[-1:], value.dtype, parameter=True) for _ in range(2)]
    return Arguments((value, *weights))


def _group_norm(pick: Picker) -> Arguments | None:
    value = pick.value(lambda value: value.is_float and value.rank >= 3 and 0 not in value.shape)
    if value is None:
        return None
    groups = pick.one_of([count for count in (1, 2, 3, 4) if value.shape[1] % count == 0])
    return Arguments((value,), {"groups": groups})


def _batch_norm(pick: Picker) -> Arguments:
    value = pick.floats(2)
    mean = pick.fresh(value.shape[1:2], value.dtype, parameter=True)
    return Arguments((value, mean, pick.fresh(value.shape[1:2], value.dtype, parameter=True, values="positive")))


def _attention(pick: Picker) -> Arguments:
    query = pick.floats(3)
    length = max(pick.one_of(pick.sizes), 1)
    keys = [pick.fresh((*query.shape[:-2], length, query.shape[-1]), query.dtype, values="normal") for _ in range(2)]
    return Arguments((query, *keys))


def _extremum(function: Callable[..., Any], part: int) -> Callable[..., Any]:
    return lambda a, dim: function(a, dim)[part]


def _sorting(part: int) -> Callable[..., Any]:
    return lambda a, dim, descending: torch.sort(a, dim=dim, descending=descending)[part]


def _top_values(a: Any, count: int, dim: int, largest: bool) -> Any:
    return torch.topk(a, count, dim=dim, largest=largest)[0]


def _normalized(a: Any, mean: Any, variance: Any) -> Any:
    return F.batch_norm(a, mean, torch.abs(variance) + 0.1)


def _last_norm(a: Any, weight: Any, bias: Any) -> Any:
    return F.layer_norm(a, (weight.shape[0],), weight, bias)


OPERATIONS = (
    Operation("sum", lambda a, dims, keep: torch.sum(a, dims, keepdim=keep), _over_dims),
    Operation("sum_all", torch.sum, lambda pick: Arguments((_numbers(pick),))),
    Operation("mean", lambda a, dims, keep: torch.mean(a, dims, keepdim=keep), _floats_over_dims),
    Operation("variance", lambda a, dims, keep: torch.var(a, dims, correction=0, keepdim=keep), _floats_over_dims),
    Operation("deviation", lambda a, dims, keep: torch.sqrt(torch.var(a, dims, keepdim=keep) + 0.1), _floats_over_dims),
    Operation("amax", lambda a, dims, keep: torch.amax(a, dims, keepdim=keep), _over_dims_not_empty, "exact"),
    Operation("amin", lambda a, dims, keep: torch.amin(a, dims, keepdim=keep), _over_dims_not_empty, "exact"),
    Operation("norm", lambda a, dims, keep: torch.linalg.vector_norm(a, 2, dims, keepdim=keep), _floats_over_dims),
    Operation("norm_one", lambda a, dims, keep: torch.linalg.vector_norm(a, 1, dims, keepdim=keep), _floats_over_dims),
    Operation("logsumexp", lambda a, dims, keep: torch.logsumexp(a, dims, keepdim=keep), _floats_over_dims),
    Operation("product", lambda a, dim: torch.prod(a, dim), _over_dim),
    Operation("max_value", _extremum(torch.max, 0), _over_dim, "exact"),
    Operation("max_index", _extremum(torch.max, 1), _over_dim, "exact"),
    Operation("min_value", _extremum(torch.min, 0), _over_dim, "exact"),
    Operation("argmax", lambda a, dim: torch.argmax(a, dim), _over_dim, "exact"),
    Operation("argmin", lambda a, dim: torch.argmin(a, dim), _over_dim, "exact"),
    Operation("any", lambda a, dim: torch.any(a > 1, dim), _over_dim, "exact"),
    Operation("all", lambda a, dim: torch.all(a < 1, dim), _over_dim, "exact"),
    Operation("softmax", lambda a, dim: torch.softmax(a, dim), _along),
    Operation("log_softmax", lambda a, dim: torch.log_softmax(a, dim), _along),
    Operation("normalize", lambda a, dim: F.normalize(a, dim=dim, eps=0.1), _along),
    Operation("glu", lambda a, dim: F.glu(torch.cat([a, a + 1], dim), dim), _along),
    Operation("cumsum", lambda a, dim: torch.cumsum(a, dim), _scan),
    Operation("cumprod", lambda a, dim: torch.cumprod(a, dim), _scan),
    Operation("top", _top_values, _top, "exact"),
    Operation("sorted", _sorting(0), _sorted, "exact"),
    Operation("sorted_order", _sorting(1), _sorted, "exact"),
    Operation("matmul", torch.matmul, _matmul),
    Operation("batched_matmul", torch.matmul, _batched),
    Operation("linear", F.linear, _linear),
    Operation("gram", lambda a: torch.matmul(a, a.transpose(-1, -2)), _own_product),
    Operation("einsum", lambda a: torch.einsum("...ij,...kj->...ki", a, a), _own_product),
    Operation("layer_norm", _last_norm, _layer_norm),
    Operation("rms_norm", lambda a, w, b: F.rms_norm(a, (w.shape[0],), w, 1e-3) + b, _layer_norm),
    Operation("group_norm", lambda a, groups: F.group_norm(a, groups), _group_norm),
    Operation("batch_norm", _normalized, _batch_norm),
    Operation("attention", F.scaled_dot_product_attention, _attention),
)
