"""Known kinds of wrong numbers, named: NaN and infinity, the range of float16, integers that wrap or saturate."""

from __future__ import annotations

import torch
from torch import Tensor

from mlirstack.compare.accuracy import Answer, Reference

_FLOAT16 = torch.finfo(torch.float16)
_INTEGERS = {"int8": torch.int8, "uint8": torch.uint8, "int16": torch.int16, "int32": torch.int32}


def symptom(got: Answer, expected: Reference) -> str | None:
    """What is wrong with the first output that is, in the words of its kind; None where it is no known kind."""
    for name, eager in expected.eager.leaves.items():
        value, precise = got.leaves.get(name), expected.precise.leaves.get(name, eager)
        if not (isinstance(value, Tensor) and isinstance(eager, Tensor) and isinstance(precise, Tensor)):
            continue
        if value.shape != eager.shape or value.dtype != eager.dtype or precise.shape != eager.shape:
            continue
        found = _of_floats(value, eager, precise) if value.is_floating_point() else _of_integers(value, eager)
        if found:
            return f"{name}: {found}"
    return None


def _of_floats(value: Tensor, eager: Tensor, precise: Tensor) -> str | None:
    half, precise = value.dtype == torch.float16, precise.double()
    nan = value.isnan() & ~eager.isnan()
    if nan.any():
        return f"NaN where eager is finite: {_places(nan)}"
    infinite = value.isinf() & ~eager.isinf()
    if infinite.any():
        largest = float(precise[infinite].abs().max())
        if half and largest <= _FLOAT16.max:
            return f"infinity in float16 where eager is at most {largest:.4g}: an intermediate value exceeds 65504"
        return f"infinity where eager is finite: {_places(infinite)}"
    clamped = (value.abs() == _FLOAT16.max) & (precise.abs() > _FLOAT16.max)
    if clamped.any():
        return f"clamped to 65504, the largest float16: {_places(clamped)}, eager is up to {float(precise.abs().max()):.4g}"
    lost = eager.isinf() & value.isfinite()
    if lost.any():
        return f"finite where eager is infinite: {_places(lost)}"
    vanished = (value == 0) & (eager != 0)
    if half and vanished.any() and float(precise[vanished].abs().max()) < _FLOAT16.smallest_normal:
        return f"zero in float16 where eager is a subnormal number: {_places(vanished)}"
    return None


def _of_integers(value: Tensor, eager: Tensor) -> str | None:
    if value.dtype in (torch.bool, torch.uint64):
        return None
    differ = value != eager
    if not differ.any():
        return None
    got, right = value[differ].long(), eager[differ].long()
    for name, dtype in _INTEGERS.items():
        info = torch.iinfo(dtype)
        outside = (right < info.min) | (right > info.max)
        if not outside.all():
            continue
        if ((got == info.min) | (got == info.max)).all():
            return f"integer overflow: saturated at the range of {name}: {_places(differ)}"
        if ((got - right) % (1 << info.bits) == 0).all():
            return f"integer overflow: wrapped at {info.bits} bits, as {name} does: {_places(differ)}"
    return None


def _places(mask: Tensor) -> str:
    first = mask.nonzero()[0].tolist()
    return f"{int(mask.sum())} of {mask.numel()} elements, the first at {first}"
