"""Decompositions for complex numbers: real arithmetic on their two parts.

The conversion to linalg knows few complex ops, and on sums of them it ends the process (torch-mlir 20261001).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.extend import Decomposition, extend

aten = torch.ops.aten


def add_complex_decompositions(table: dict[Any, Decomposition]) -> None:
    """Extend ``table``; what stands there already is kept for real tensors."""
    rules: dict[Any, Decomposition] = {
        aten.add.Tensor: _add,
        aten.sub.Tensor: _subtract,
        aten.mul.Tensor: _multiply,
        aten.div.Tensor: _divide,
        aten.neg.default: _negate,
        aten.abs.default: magnitude,
        aten.angle.default: _angle,
        aten.exp.default: _exponential,
        aten._conj.default: _conjugate,
        aten.conj_physical.default: _conjugate,
        aten.any.default: _any,
        aten.any.dim: _any,
        aten.sum.default: _sum,
        aten.sum.dim_IntList: _sum,
        aten.mean.default: _mean,
        aten.mean.dim: _mean,
    }
    extend(table, aten.full.default, _full)
    extend(table, torch.ops.prims.convert_element_type.default, _converted)
    for op, rule in rules.items():
        extend(table, op, functools.partial(if_complex, rule))


def if_complex(rule: Decomposition, *args: Any, **kwargs: Any) -> Any:
    """What ``rule`` gives where one of the first two operands is complex, else NotImplemented."""
    found = any(isinstance(a, complex) or (isinstance(a, Tensor) and a.is_complex()) for a in args[:2])
    return rule(*args, **kwargs) if found else NotImplemented


def _converted(x: Tensor, dtype: torch.dtype) -> Any:
    """To a complex dtype part by part; to a real one the real part; a boolean says whether a number is anything but zero."""
    if dtype.is_complex and x.dtype != dtype:
        real, imaginary = parts(x)
        part = dtype.to_real()
        wide = real.to(part)
        return torch.complex(wide, imaginary.to(part) if x.is_complex() else torch.zeros_like(wide))
    if not x.is_complex() or dtype.is_complex:
        return NotImplemented
    return torch.logical_or(x.real != 0, x.imag != 0) if dtype == torch.bool else x.real.to(dtype)


def _full(size: Sequence[int], number: complex, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
    """A tensor of one complex number; torch-mlir's conversion makes complex128 of any."""
    wanted = dtype or (torch.complex64 if isinstance(number, complex) else None)
    if wanted is None or not wanted.is_complex:
        return NotImplemented
    part = wanted.to_real()
    return torch.complex(*(torch.full(size, half, dtype=part, **options) for half in (number.real, number.imag)))


def parts(value: Any) -> tuple[Any, Any]:
    """Real and imaginary part of a tensor or number."""
    if isinstance(value, Tensor):
        return (value.real, value.imag) if value.is_complex() else (value, 0)
    return (value.real, value.imag)


def _join(real: Any, imaginary: Any, *operands: Any) -> Tensor:
    """A complex tensor in the dtype that torch promotes ``operands`` to."""
    dtype = torch.result_type(*operands) if len(operands) == 2 else operands[0].dtype
    part = dtype.to_real()
    tensors = [p.to(part) if isinstance(p, Tensor) else torch.full((), p, dtype=part) for p in (real, imaginary)]
    return torch.complex(*torch.broadcast_tensors(*tensors))  # type: ignore[no-untyped-call]


def _add(a: Any, b: Any, *, alpha: float = 1) -> Tensor:
    (ar, ai), (br, bi) = parts(a), parts(b)
    scaled = (br, bi) if alpha == 1 else (br * alpha, bi * alpha)
    return _join(ar + scaled[0], ai + scaled[1], a, b)


def _subtract(a: Any, b: Any, *, alpha: float = 1) -> Tensor:
    return _add(a, b, alpha=-alpha)


def _multiply(a: Any, b: Any) -> Tensor:
    (ar, ai), (br, bi) = parts(a), parts(b)
    return _join(ar * br - ai * bi, ar * bi + ai * br, a, b)


def _divide(a: Any, b: Any) -> Tensor:
    (ar, ai), (br, bi) = parts(a), parts(b)
    if isinstance(b, Tensor) and b.is_complex():
        scale = torch.maximum(br.abs(), bi.abs())  # so that squares neither overflow nor vanish
        br, bi = br / scale, bi / scale
        ar, ai = ar / scale, ai / scale
        square = br * br + bi * bi
        return _join((ar * br + ai * bi) / square, (ai * br - ar * bi) / square, a, b)
    if isinstance(b, complex):
        return _multiply(a, 1 / b)
    return _join(ar / br, ai / br, a, b)


def _negate(a: Tensor) -> Tensor:
    return torch.complex(-a.real, -a.imag)


def _conjugate(a: Tensor) -> Tensor:
    return torch.complex(a.real, -a.imag)


def magnitude(a: Tensor) -> Tensor:
    """The larger part times the root of 1 + (smaller / larger)², which does not overflow."""
    large, _, ratio = sides(a.real, a.imag)
    return large * torch.sqrt(1 + ratio * ratio)


def sides(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The larger and the smaller of the magnitudes of two real tensors, and the smaller over the larger."""
    x, y = x.abs(), y.abs()
    large, small = torch.maximum(x, y), torch.minimum(x, y)
    return large, small, torch.where(small == large, 1.0, small / large)  # both may be zero, or infinite


def _angle(a: Tensor) -> Tensor:
    return torch.atan2(a.imag, a.real)


def _exponential(a: Tensor) -> Tensor:
    length = a.real.exp()
    return torch.complex(length * a.imag.cos(), length * a.imag.sin())


def _any(a: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return ((a.real != 0) | (a.imag != 0)).any(*args, **kwargs)


def _sum(a: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return torch.complex(a.real.sum(*args, **kwargs), a.imag.sum(*args, **kwargs))


def _mean(a: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return torch.complex(a.real.mean(*args, **kwargs), a.imag.mean(*args, **kwargs))
