"""Fast forms of the scalar functions in a body, where the result is rounded to 16 bits right after.

Hardware approximations have relative errors around 2⁻²²; rounding to f16 or bf16 has 2⁻¹² or 2⁻⁹, so nothing is lost.  All
forms keep NaN and infinities as the exact functions have them.  Results that stay f32 are never approximated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.passes import functions
from mlirstack.schedules.cuda.graph import Node
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.values import Float

LOG2_E = 1.4426950408889634
_ERFC = (  # erfc(z) = t·exp(-z² + P(t)), t = 1 / (1 + z/2), relative error 1.2e-7; Numerical Recipes in C, 6.2
    0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368,
    -1.26551223,
)  # fmt: skip

Value = Callable[[Any], Any]


class Approximation:
    """Replaces ops of one node's body, as :meth:`Node.inline` asks for it."""

    def __init__(self, kernel: Kernel, node: Node) -> None:
        self._kernel = kernel
        self._rounded: dict[Any, bool] = {}

    def __call__(self, op: Any, value: Value) -> Any:
        """The result of ``op`` in its fast form, or None to keep the op."""
        if op.name == "math.powf":
            return _power(op, value)
        if len(op.results) != 1 or op.results[0].type != self._kernel.f32 or not self._is_rounded(op.results[0]):
            return None
        found = _FORMS.get(op.name)
        return found(self._kernel, op, value) if found else None

    def _is_rounded(self, result: Any) -> bool:
        """Do all uses of a value end in a rounding to 16 bits, through f32 arithmetic only?"""
        if result not in self._rounded:
            self._rounded[result] = False  # nothing is its own use in a body
            users = [use.owner.operation for use in result.uses]
            self._rounded[result] = bool(users) and all(self._rounds(user) for user in users)
        return self._rounded[result]

    def _rounds(self, user: Any) -> bool:
        if user.name == "arith.truncf":
            return bool(user.results[0].type.width == 16)
        through = user.name in _CONTINUOUS and user.results[0].type == self._kernel.f32
        return through and self._is_rounded(user.results[0])


# Functions through which a relative error of 2⁻²² passes without growing beyond a few times itself.  Sums and differences
# may cancel, but then what they cancel to is as uncertain as the exact function's own rounding error makes it.
_CONTINUOUS = {"arith.mulf", "arith.divf", "arith.addf", "arith.negf", "arith.maximumf", "arith.select"}


def exp2(kernel: Kernel, x: Float) -> Float:
    """2ˣ to 2 ulp (``ex2.approx``), subnormal results included."""
    return Float(kernel.assembly("ex2.approx.f32 $0, $1;", "=f,f", [x], kernel.f32))


def reciprocal(kernel: Kernel, x: Float) -> Float:
    """1 / x to 1 ulp (``rcp.approx``)."""
    return Float(kernel.assembly("rcp.approx.f32 $0, $1;", "=f,f", [x], kernel.f32))


def _exp(kernel: Kernel, op: Any, value: Value) -> Any:
    return exp2(kernel, Float(value(op.operands[0])) * LOG2_E).value


def _divide(kernel: Kernel, op: Any, value: Value) -> Any:
    numerator, denominator = (Float(value(operand)) for operand in op.operands)
    if _constant(op.operands[0]) == 1.0:
        return reciprocal(kernel, denominator).value
    return kernel.assembly("div.full.f32 $0, $1, $2;", "=f,f,f", [numerator, denominator], kernel.f32)


def _add(kernel: Kernel, op: Any, value: Value) -> Any:
    """``1 + erf(z)`` and ``1 + tanh(z)``, which cancel for negative z, from functions that do not; None for other sums."""
    for function, other in (op.operands, list(op.operands)[::-1]):
        producer = functions.defining_op(function)
        if producer is None or _constant(other) != 1.0 or sum(1 for _ in function.uses) != 1:
            continue
        if producer.name == "math.erf":
            return _one_plus_erf(kernel, Float(value(producer.operands[0]))).value
        if producer.name == "math.tanh":
            twice = exp2(kernel, Float(value(producer.operands[0])) * (-2 * LOG2_E))
            return (reciprocal(kernel, twice + 1.0) * 2.0).value
    return None


def _one_plus_erf(kernel: Kernel, z: Float) -> Float:
    """erfc(-z): the complementary error function of a positive argument, mirrored for z > 0."""
    magnitude = Float(dialect("math").AbsFOp(z.value).result)
    t = reciprocal(kernel, magnitude.fma(0.5, 1.0))
    exponent = kernel.real(_ERFC[0])
    for coefficient in _ERFC[1:]:
        exponent = exponent.fma(t, coefficient)
    tail = t * exp2(kernel, (exponent - magnitude * magnitude) * LOG2_E)
    negative = dialect("arith").CmpFOp(dialect("arith").CmpFPredicate.OLT, z.value, kernel.real(0.0).value).result
    return Float(dialect("arith").SelectOp(negative, tail.value, (kernel.real(2.0) - tail).value).result)


def _power(op: Any, value: Value) -> Any:
    """x² and x³ as products, which is how torch computes them; None for other powers."""
    exponent = _constant(op.operands[1])
    if exponent not in (2.0, 3.0):
        return None
    x = Float(value(op.operands[0]))
    return (x * x if exponent == 2.0 else x * x * x).value


def _constant(value: Any) -> float | None:
    producer = functions.defining_op(value)
    if producer is None or producer.name != "arith.constant" or not isinstance(producer.attributes["value"], ir.FloatAttr):
        return None
    return float(ir.FloatAttr(producer.attributes["value"]).value)


_FORMS: dict[str, Callable[[Kernel, Any, Value], Any]] = {"math.exp": _exp, "arith.divf": _divide, "arith.addf": _add}
