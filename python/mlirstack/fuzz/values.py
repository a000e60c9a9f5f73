"""The tensors that an input spec describes: always the same ones for the same spec.

``VALUES`` are kinds of numbers (ties and special values among them), ``LAYOUTS`` ways to lie in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from mlirstack.fuzz.spec import InputSpec

_SPECIAL = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e-40, 1.0, -1.0)


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def _whole(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Small whole numbers: many ties, and sums that every dtype holds exactly."""
    return torch.randint(-3, 4, shape, generator=generator).double()


def _positive(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.rand(shape, dtype=torch.float64, generator=generator) + 0.1


def _wide(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Magnitudes from 1e-3 to 1e3."""
    return _normal(shape, generator).sign() * 10.0 ** (6 * torch.rand(shape, dtype=torch.float64, generator=generator) - 3)


def _special(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """A quarter NaN, infinities, zeros of both signs, subnormal numbers."""
    picked = torch.tensor(_SPECIAL, dtype=torch.float64)[torch.randint(len(_SPECIAL), shape, generator=generator)]
    return torch.where(torch.rand(shape, generator=generator) < 0.25, picked, _normal(shape, generator))


VALUES: Mapping[str, Callable[[tuple[int, ...], torch.Generator], Tensor]] = {
    "normal": _normal,
    "whole": _whole,
    "positive": _positive,
    "wide": _wide,
    "special": _special,
}


def _permuted(dense: Tensor) -> Tensor:
    order = list(reversed(range(dense.dim())))
    return dense.permute(order).contiguous().permute(order)


def _channels_last(dense: Tensor) -> Tensor:
    return dense.contiguous(memory_format=torch.channels_last) if dense.dim() == 4 else _permuted(dense)


def _strided(dense: Tensor) -> Tensor:
    """Every second element of the last dimension of a larger tensor, from its second row on."""
    if not dense.dim():
        return dense
    shape = [dense.shape[0] + 1, *dense.shape[1:]] if dense.dim() > 1 else list(dense.shape)
    large = dense.new_zeros([*shape[:-1], 2 * shape[-1]])
    view = large[1:, ..., ::2] if dense.dim() > 1 else large[::2]
    return view.copy_(dense)


def _expanded(dense: Tensor) -> Tensor:
    """Stride 0 in the first dimension: all rows are the first one."""
    return dense[:1].expand(dense.shape) if dense.dim() and dense.shape[0] else dense


LAYOUTS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda dense: dense,
    "permuted": _permuted,
    "channels_last": _channels_last,
    "strided": _strided,
    "expanded": _expanded,
}


def dtype_of(name: str) -> torch.dtype:
    """torch's dtype of a name without the prefix."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def is_inexact(dtype: torch.dtype) -> bool:
    """Whether ``dtype`` is of real or complex numbers, which are rounded."""
    return dtype.is_floating_point or dtype.is_complex


def widened(value: Tensor) -> Tensor:
    """Real and complex numbers in double precision, all else as it is."""
    return value.to(torch.complex128 if value.is_complex() else torch.float64) if is_inexact(value.dtype) else value


def tensor_of(spec: InputSpec) -> Tensor:
    """The tensor that ``spec`` describes: ``shape`` and ``dtype`` as it says."""
    dtype = dtype_of(spec.dtype)
    if spec.literal is not None:
        dense = torch.tensor(spec.literal, dtype=torch.float64 if dtype.is_floating_point else dtype).reshape(spec.shape)
    elif dtype.is_floating_point:
        dense = VALUES[spec.values](spec.shape, torch.Generator().manual_seed(spec.seed))
    elif dtype.is_complex:
        generator = torch.Generator().manual_seed(spec.seed)
        dense = torch.complex(*(VALUES[spec.values](spec.shape, generator) for _ in range(2)))
    else:
        low, high = _integer_range(dtype, spec.values)
        dense = torch.randint(low, high, spec.shape, generator=torch.Generator().manual_seed(spec.seed))
    return LAYOUTS[spec.layout](dense.to(dtype))


def _integer_range(dtype: torch.dtype, values: str) -> tuple[int, int]:
    """Bounds of random integers, the upper one excluded."""
    if dtype == torch.bool:
        return 0, 2
    low, high = (0, 8) if values == "positive" else (-5, 6)
    if values in ("wide", "special"):
        # Every value of the narrow types; products of the wide ones overflow.
        limits = torch.iinfo(dtype)
        low, high = max(limits.min, -(2**40)), min(limits.max, 2**40) + 1
    return (max(low, 0), high) if not dtype.is_signed else (low, high)
