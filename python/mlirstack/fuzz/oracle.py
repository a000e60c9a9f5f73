"""Whether an answer is right, told from the graph: eager, the same in float64, and how far rounding alone may lead.

Every operation is evaluated three ways: as eager does, in float64, and in float64 with operands and results disturbed by a
few roundings of their dtype, which is what another correct implementation may do.  An element on which the disturbed answers
do not agree (a floor at a whole number, a difference of equal numbers) decides nothing and is left out; all others are held
to the tolerance of :mod:`mlirstack.compare.accuracy`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from mlirstack.compare.accuracy import TOLERANCES, compare_leaf, smallest_spacing
from mlirstack.frontend.half import accumulation
from mlirstack.fuzz.operations import Rounding, evaluate, table
from mlirstack.fuzz.spec import Call, GraphSpec
from mlirstack.fuzz.sums import TERMS, ZEROS_OF_EITHER_SIGN
from mlirstack.fuzz.values import is_inexact, tensor_of, widened

_ROUNDINGS = 4.0  # by how many unit roundoffs operands and results are disturbed
# Disturbed evaluations, made where an answer is not eager's: some, and more where it is still wrong by them, because several
# operations may have to err in the right way.
_FEW, _MANY = 16, 64
# Three of four lead as far as they may in every place, up or down, so that a step within reach is as likely crossed as not;
# the others lead anywhere between, which alone misses one in six steps that are three roundings away.
_FARTHEST = 3, 4


@dataclass(frozen=True)
class Verdict:
    """What came of one graph: ``reason`` says what is wrong; ``decided`` is the share of elements that could be judged."""

    reason: str | None
    decided: float

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.reason is None


@dataclass(frozen=True)
class Expected:
    """Eager's outputs of one graph, the same in float64, and the narrowest dtype on the way to each."""

    spec: GraphSpec
    eager: tuple[Tensor, ...]
    precise: tuple[Tensor, ...]
    narrowest: tuple[torch.dtype | None, ...]


def expect(spec: GraphSpec) -> Expected:
    """Evaluate ``spec`` with eager and in float64."""
    with _quiet():
        eager = _eager(spec)
        precise = _precise(spec, eager, None)
        narrow = _narrowest(spec, eager)
    outputs = spec.outputs
    return Expected(
        spec,
        tuple(eager[name] for name in outputs),
        tuple(precise[name] for name in outputs),
        tuple(narrow[name] for name in outputs),
    )


def judge(expected: Expected, got: Sequence[Tensor], *, flushes: bool = False) -> Verdict:
    """The verdict on the outputs ``got``, element by element where rounding decides.

    ``flushes``: the target takes subnormal numbers for zero, and nothing that hangs on them is decided.
    """
    if len(got) != len(expected.eager):
        return Verdict(f"{len(got)} outputs, eager has {len(expected.eager)}", 1.0)
    if all(_reason(expected, index, value, None) is None for index, value in enumerate(got)):
        return Verdict(None, 1.0)
    for count in (_FEW, _MANY):
        unstable = undecided(expected, count, flushes=flushes)
        reasons = [_reason(expected, index, value, unstable[index]) for index, value in enumerate(got)]
        if not any(reasons):
            break
    count = sum(mask.numel() for mask in unstable)
    share = 1.0 - sum(int(mask.sum()) for mask in unstable) / max(count, 1)
    return Verdict("; ".join(reason for reason in reasons if reason is not None) or None, share)


def _reason(expected: Expected, index: int, got: Tensor, unstable: Tensor | None) -> str | None:
    """What is wrong with output ``index``, leaving out the ``unstable`` elements."""
    eager, precise, narrow = expected.eager[index], expected.precise[index], expected.narrowest[index]
    name = f"output {index} ({expected.spec.outputs[index]})"
    if got.shape != eager.shape or got.dtype != eager.dtype:
        return f"{name} is {got.dtype}{list(got.shape)}, eager gives {eager.dtype}{list(eager.shape)}"
    if unstable is not None:
        got, precise = torch.where(unstable, eager, got), torch.where(unstable, eager.to(precise.dtype), precise)
    if eager.is_floating_point():
        near = (got.double() - precise).abs() <= _smallest_errors(narrow or eager.dtype)
        got, precise = torch.where(near, eager, got), torch.where(near, eager.double(), precise)
    if narrow is not None and eager.is_floating_point():
        # A float32 that was computed from bfloat16 is known to bfloat16's precision.
        got, eager = got.to(narrow), eager.to(narrow)
    reason = compare_leaf(name, got, eager, precise).reason
    return None if reason is None else f"{name}: {reason}"


def _smallest_errors(kind: torch.dtype) -> float:
    """Four roundings of subnormal numbers, each half of what these are apart, whatever their relative error is."""
    return _ROUNDINGS / 2 * smallest_spacing(kind)


def undecided(expected: Expected, count: int = _FEW, *, flushes: bool = False) -> list[Tensor]:
    """For each output, the elements on which rounding alone may decide; with ``flushes``, or subnormal numbers.

    ``count`` disturbed evaluations tell which.
    """
    spec = expected.spec
    with _quiet():
        eager = _eager(spec)
        disturbed = [_precise(spec, eager, _Disturbance.number(number)) for number in range(count)]
        if flushes:
            disturbed.append(_precise(spec, eager, None, flushes=True))
    masks = []
    for name, own, precise, narrow in zip(
        spec.outputs, expected.eager, expected.precise, expected.narrowest, strict=True
    ):  # fmt: skip
        answers = [own, *(environment[name] for environment in disturbed)]
        mask, count = torch.zeros(own.shape, dtype=torch.bool), -1
        # What is left out gives the others no size: without it, more of them may be apart.
        while count != (count := int(mask.sum())):
            decided = torch.where(mask, own.to(precise.dtype), precise)
            for value in answers:
                mask |= _apart(value, decided, own, narrow)
        masks.append(mask)
    return masks


def _apart(value: Tensor, precise: Tensor, eager: Tensor, narrow: torch.dtype | None) -> Tensor:
    """Elements where ``value`` is not ``precise`` within the tolerance of what eager returns."""
    if value.shape != precise.shape or not is_inexact(eager.dtype):
        return value.to(eager.dtype) != precise.to(eager.dtype)
    if eager.is_complex():
        value = value.to(precise.dtype)
        return _apart(value.real, precise.real, eager.real, narrow) | _apart(value.imag, precise.imag, eager.imag, narrow)
    kind = narrow or eager.dtype
    # As it would be stored: what overflows there is infinite.
    a, b = value.to(kind).double(), precise.to(kind).double()
    # Of what eager has numbers for: others have no part in the comparison either.
    scale = b.abs() + torch.where(b.isfinite() & eager.isfinite(), b, 0.0).square().mean().sqrt()
    # An infinite scale would let every number be near to infinity.
    allowed = TOLERANCES[kind].floor * scale + _smallest_errors(kind)
    near = b.isfinite() & ((a - b).abs() <= allowed)
    return ~(near | (a == b) | (a.isnan() & b.isnan()))


# ------------------------------------------------------------------------------------------------------------ evaluation


@dataclass(frozen=True)
class _Disturbance:
    """Errors of one evaluation: relative ones from -1 to 1, or of these two alone (``farthest``)."""

    generator: torch.Generator
    farthest: bool

    @classmethod
    def number(cls, number: int) -> _Disturbance:
        """Disturbance ``number`` of every graph."""
        return cls(torch.Generator().manual_seed(number), number % _FARTHEST[1] < _FARTHEST[0])

    def errors(self, shape: Sequence[int]) -> Tensor:
        """Errors of ``shape``, in float64."""
        errors = 2.0 * torch.rand(tuple(shape), dtype=torch.float64, generator=self.generator) - 1.0
        return torch.where(errors < 0, -1.0, 1.0).to(errors.dtype) if self.farthest else errors


def _eager(spec: GraphSpec) -> dict[str, Tensor]:
    environment = {value.name: tensor_of(value) for value in spec.inputs}
    for call in spec.calls:
        environment[call.name] = evaluate(call, environment)
    return environment


def _precise(
    spec: GraphSpec, eager: Mapping[str, Tensor], disturbance: _Disturbance | None, *, flushes: bool = False
) -> dict[str, Tensor]:
    """All values in float64; with a disturbance, every inexact operation is disturbed; with ``flushes`` there are no
    subnormal numbers."""
    environment = {value.name: widened(eager[value.name]) for value in spec.inputs}
    narrow = _narrowest(spec, eager)
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # what quotients of integers are
    try:
        for call in spec.calls:
            given = {name: environment[name] for name in call.operands}
            if flushes:
                given = {name: _flushed(value, eager[name].dtype) for name, value in given.items()}
            # By its definition: eager's fused kernel gives 0 for some rows of scores that are all NaN.
            with sdpa_kernel(SDPBackend.MATH):
                result = _evaluate_precisely(call, given, eager, disturbance)
            if disturbance is not None and call.op in _EQUALITIES:
                either = _may_be_equal([given[name] for name in call.operands], [narrow[name] for name in call.operands])
                result = torch.where(either, disturbance.errors(result.shape) > 0, result)
            environment[call.name] = _flushed(result, eager[call.name].dtype) if flushes else result
    finally:
        torch.set_default_dtype(usual)
    return environment


def _evaluate_precisely(
    call: Call, given: Mapping[str, Tensor], eager: Mapping[str, Tensor], disturbance: _Disturbance | None
) -> Tensor:
    rounding = table()[call.op].rounding
    kind = eager[call.name].dtype
    if disturbance is not None and rounding == "computed":
        given = {name: _disturbed(value, eager[name].dtype, disturbance) for name, value in given.items()}
    if call.op == "cast" and kind.is_floating_point:
        # To a narrower dtype and back is a rounding, which disturbing stands for.
        call = Call(call.name, call.op, call.operands, (("dtype", "float64"),))
    result = widened(evaluate(call, given))
    if disturbance is None or not is_inexact(kind):
        return result
    first = given[call.operands[0]]
    if call.op in _PRODUCTS:
        result = torch.where(_depends_on_order(first, kind, _PRODUCTS[call.op], dict(call.options)["dim"]), math.nan, result)
    if call.op in TERMS:
        result = result + _errors_of_sum(call, given, result, kind, disturbance)
    if call.op in ZEROS_OF_EITHER_SIGN and not result.is_complex():
        result = torch.where(result == 0, disturbance.errors(result.shape) * 0.0, result)
    return _rounded(result, first, kind, rounding, disturbance)


_EQUALITIES = ("eq", "ne")


def _may_be_equal(values: Sequence[Tensor], kinds: Sequence[torch.dtype | None]) -> Tensor:
    """Where two values, the least precise dtypes on the way to which are ``kinds``, round to equal numbers or to different
    ones; two that their dtypes hold exactly are what they are."""
    within, exact = torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.bool)
    for value, kind in zip(values, kinds, strict=True):
        if kind is not None and not value.is_complex():
            limits = torch.finfo(kind)
            within = within + _ROUNDINGS * limits.eps / 2 * value.abs().clamp(min=limits.smallest_normal)
            exact = exact & (widened(value.to(kind)) == value)
    left, right = values
    return ~exact & ((left - right).abs() <= within) if left is not right else torch.zeros_like(left, dtype=torch.bool)


def _flushed(value: Tensor, kind: torch.dtype) -> Tensor:
    """``value``, zero where it is subnormal as a ``kind`` that processors compute with; float16 is made wider first."""
    if not kind.is_floating_point or kind == torch.float16:
        return value
    return torch.where(value.abs() < torch.finfo(kind).smallest_normal, value * 0.0, value)


# The products of several factors, and how their logarithms are added.
_PRODUCTS: Mapping[str, Callable[..., Tensor]] = {"product": torch.sum, "cumprod": torch.cumsum}


def _depends_on_order(factors: Tensor, kind: torch.dtype, added: Callable[..., Tensor], dim: Any) -> Tensor:
    """Products along ``dim`` that one order takes beyond the largest number, where small factors still are to come.

    The product is then infinite, and NaN where the small factors have met before and made a zero.
    """
    sizes = factors.abs().log2().masked_fill(~factors.isfinite(), 0.0)
    large, small = added(sizes.clamp(min=0.0), dim), added(sizes.clamp(max=0.0), dim)
    limits = torch.finfo(accumulation(kind))
    overflows, underflows = large > math.log2(limits.max), small < math.log2(limits.smallest_normal)
    return (overflows & (small < 0)) | (underflows & (large > 0) & small.isfinite())


def _errors_of_sum(
    call: Call, given: Mapping[str, Tensor], result: Tensor, kind: torch.dtype, disturbance: _Disturbance
) -> Tensor:
    """Errors of sums that are taken in another order: relative to the sums of magnitudes, however much of these cancels.

    Pairs of n terms, and pairs of their sums, may be off by ⌈log₂ n⌉ roundoffs (Higham, "Accuracy and Stability of Numerical
    Algorithms", section 4.2); other orders make larger errors.
    """
    terms = TERMS[call.op]([given[name] for name in call.operands], result, dict(call.options))
    steps = math.ceil(math.log2(terms)) if terms > 1 else 0
    if not steps:
        return torch.zeros_like(result)
    magnitudes = evaluate(call, {name: value.abs() for name, value in given.items()})
    # Next to infinity there is nothing to be off by.
    sizes = torch.where(magnitudes.isfinite(), magnitudes, 0.0)
    return torch.finfo(accumulation(kind)).eps / 2 * steps * disturbance.errors(result.shape) * sizes


def _rounded(
    result: Tensor, operand: Tensor, kind: torch.dtype, rounding: Rounding, disturbance: _Disturbance
) -> Tensor:  # fmt: skip
    if rounding == "exact":
        return result
    if rounding == "cancelling":
        return _disturbed(result, kind, disturbance) + (_disturbed(operand, kind, disturbance) - operand)
    disturbed = _disturbed(result, kind, disturbance)
    # What the dtype holds exactly, IEEE arithmetic gives exactly.
    return torch.where(widened(result.to(kind)) == result, result, disturbed) if rounding == "rounded" else disturbed


def _disturbed(value: Tensor, kind: torch.dtype, disturbance: _Disturbance) -> Tensor:
    if not is_inexact(value.dtype) or not is_inexact(kind):
        return value
    limits = torch.finfo(kind)
    size = _ROUNDINGS * limits.eps / 2
    # Below the smallest normal number a rounding is as large as there; zero itself is exact.
    rounding = torch.where(value != 0, value.abs().clamp(min=limits.smallest_normal), 0.0)
    return value + size * disturbance.errors(value.shape) * rounding


def _narrowest(spec: GraphSpec, eager: Mapping[str, Tensor]) -> dict[str, torch.dtype | None]:
    """The least precise dtype of real numbers (or of parts of complex ones) on the way to each value; None where there is
    none."""
    found: dict[str, torch.dtype | None] = {value.name: _own_kind(eager[value.name]) for value in spec.inputs}
    for call in spec.calls:
        kinds = [found[name] for name in call.operands] + [_own_kind(eager[call.name])]
        floats = [kind for kind in kinds if kind is not None]
        found[call.name] = max(floats, key=lambda kind: torch.finfo(kind).eps, default=None)
    return found


def _own_kind(value: Tensor) -> torch.dtype | None:
    return value.dtype.to_real() if is_inexact(value.dtype) else None


@contextmanager
def _quiet() -> Iterator[None]:
    """Without gradients and warnings."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
