"""Operations along a dimension of tensors that have none: torch takes dimension 0 and -1 of these for the only one.

Torch-mlir's conversions do not: they fail, end the process, or take a softmax apart without end (torch-mlir 20261001).
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from mlirstack.frontend.decompositions.extend import Decomposition, extend

aten = torch.ops.aten

_ALONG_A_DIMENSION = (
    aten._log_softmax.default, aten._softmax.default, aten.log_softmax.int, aten.softmax.int, aten._safe_softmax.default,
    aten.all.dim, aten.all.dims, aten.any.dim, aten.any.dims, aten.amax.default, aten.amin.default, aten.aminmax.default,
    aten.argmax.default, aten.argmin.default, aten.kthvalue.default, aten.logsumexp.default, aten.max.dim, aten.min.dim,
    aten.prod.dim_int, aten.gather.default, aten.index_add.default, aten.index_reduce.default,
    aten.index_select.default,
)  # fmt: skip


def add_scalar_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``: of tensors without dimensions they are those of tensors with one element."""
    for op in _ALONG_A_DIMENSION:
        extend(table, op, functools.partial(_as_one_element, op))


def _as_one_element(op: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    if x.dim():
        return NotImplemented
    first, others, options = pytree.tree_map(_with_dimension, (x, args, kwargs))
    return pytree.tree_map(lambda result: result.reshape(()), op(first, *others, **options))


def _with_dimension(value: Any) -> Any:
    return value.unsqueeze(0) if isinstance(value, Tensor) and not value.dim() else value
