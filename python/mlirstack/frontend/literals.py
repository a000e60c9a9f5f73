"""Numbers of a model beyond the largest one of the dtype that they are taken in.

In most operations eager rounds such a number to infinity, as a tensor of one number; where it is to be stored (a fill, a
bound, a factor of a sum) eager raises an error.  Torch's decompositions do either, whatever eager does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from mlirstack.errors import UnsupportedError, UnsupportedOp
from mlirstack.frontend.graph import calls, describe, node_source

_REFUSAL = "cannot be converted to type"  # of eager, in words of torch
_LARGEST = 2**20  # elements of operands on which eager is asked


def rounded(number: Any, dtype: torch.dtype) -> Any:
    """``number`` as it is rounded to ``dtype`` if it lies beyond the largest one, else as it is; sizes are left alone."""
    if not dtype.is_floating_point or not isinstance(number, (int, float)) or not math.isfinite(number):
        return number
    limits = torch.finfo(dtype)
    if abs(number) <= limits.max:
        return number
    # Half of the distance that numbers have there; half way between, the next one is infinite.
    beyond = limits.max + limits.max * limits.eps / (2 - limits.eps) / 2
    most = limits.max if abs(number) < beyond else math.inf
    return most if number > 0 else -most


def wrapped(number: int, dtype: torch.dtype) -> int:
    """``number`` modulo the size of an integer ``dtype``, as comparisons take it: an int8 meets 300 as 44."""
    if dtype == torch.bool:
        return number
    limits = torch.iinfo(dtype)
    return (number - limits.min) % (limits.max - limits.min + 1) + limits.min


def constant(number: Any, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
    """A tensor without dimensions of ``number`` as operations of ``dtype`` take it."""
    return torch.full((), rounded(number, dtype), dtype=dtype, device=device)


def refuse_overflowing_numbers(module: fx.GraphModule) -> None:
    """:class:`UnsupportedError` naming the calls in ``module`` that hold a number of which eager raises an error."""
    refused = tuple(
        UnsupportedOp(describe(node), f"eager raises: {reason}", node_source(node))
        for node in calls(module)
        if (reason := _eager_error(node)) is not None
    )
    if refused:
        raise UnsupportedError(f"{len(refused)} operation(s) hold a number that their dtype does not", refused)


def _eager_error(node: fx.Node) -> str | None:
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    results = [value for value in pytree.tree_leaves(node.meta.get("val")) if isinstance(value, Tensor)]
    operands = [value for read in node.all_input_nodes if isinstance(value := read.meta.get("val"), Tensor)]
    numbers = [leaf for leaf in pytree.tree_leaves((node.args, node.kwargs)) if isinstance(leaf, (int, float))]
    tensors = [*operands, *results]
    if not any(_is_beyond(number, tensor.dtype) for number in numbers for tensor in tensors):
        return None
    if len(operands) < len(node.all_input_nodes) or not all(_is_small(tensor) for tensor in tensors):
        return None
    arguments = fx.map_arg(
        (node.args, node.kwargs), lambda read: torch.zeros(read.meta["val"].shape, dtype=read.meta["val"].dtype)
    )
    args, kwargs = arguments
    try:
        node.target(*args, **{**kwargs, **({"device": "cpu"} if "device" in kwargs else {})})
    except RuntimeError as error:
        return str(error).splitlines()[0] if _REFUSAL in str(error) else None
    return None


def _is_beyond(number: float, dtype: torch.dtype) -> bool:
    if dtype.is_complex or dtype == torch.bool or not math.isfinite(number):
        return False
    limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    return not limits.min <= number <= limits.max


def _is_small(tensor: Tensor) -> bool:
    sizes: Iterable[Any] = tensor.shape
    return all(isinstance(size, int) for size in sizes) and tensor.numel() <= _LARGEST
