"""Fast forms of the scalar functions in a body, where the result is rounded to 16 bits right after.

Hardware approximations have relative errors around 2⁻²²; rounding to f16 or bf16 has 2⁻¹² or 2⁻⁹, so nothing is lost.  All
forms keep NaN and infinities as the exact functions have them.  Results that stay f32 are never approximated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.passes import functions
from mlirstack.schedules.cuda.graph import KernelGraph, Node, Tensor
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.values import Float

LOG2_E = 1.4426950408889634
# log2(erfc(z) exp(z²) / t) as a polynomial in t = 1 / (1 + z/2), highest power first; the relative error of erfc is 8e-6.
# The form is that of Numerical Recipes in C, 6.2; the coefficients were fitted for the smallest error up to z = 9.
_ERFC = (0.33007422, -1.02314461, 0.68454683, 0.36708537, 1.46868264, -1.82723346)

Value = Callable[[Any], Any]


class Approximation:
    """Replaces ops of one node's body, as :meth:`Node.inline` asks for it.

    ``rounded``: tensors that other nodes of the kernel round (:func:`rounded_tensors`); results of the node among them may
    be approximate.
    """

    def __init__(self, kernel: Kernel, node: Node, rounded: Collection[Tensor] = ()) -> None:
        self._kernel = kernel
        self._uses = _Uses(node, rounded)
        self._maxima = _maxima_of_what_is_read(node)

    def __call__(self, op: Any, value: Value) -> Any:
        """The result of ``op`` in its fast form, or None to keep the op."""
        if len(op.results) != 1 or op.results[0].type != self._kernel.f32 or not self._uses.are_rounded(op.results[0]):
            return None
        if op.name == "math.exp":
            return _exp(self._kernel, op, value, self._maxima)
        found = _FORMS.get(op.name)
        return found(self._kernel, op, value) if found else None


class _Uses:
    """Where the values of one body end up."""

    def __init__(self, node: Node, rounded: Collection[Tensor]) -> None:
        self._outputs = [output.tensor in rounded for output in node.outputs]
        self._known: dict[Any, bool] = {}

    def are_rounded(self, value: Any) -> bool:
        """Do all uses of an f32 value end in a rounding to 16 bits, through f32 arithmetic only?"""
        if value not in self._known:
            self._known[value] = False  # nothing is its own use in a body
            uses = list(value.uses)
            self._known[value] = bool(uses) and all(self._rounds(use) for use in uses)
        return self._known[value]

    def _rounds(self, use: Any) -> bool:
        user = use.owner.operation
        if user.name == "arith.truncf":
            return bool(user.results[0].type.width == 16)
        if user.name == "linalg.yield":
            return self._outputs[use.operand_number]
        through = user.name in _CONTINUOUS and user.results[0].type == ir.F32Type.get()
        return through and self.are_rounded(user.results[0])


def rounded_tensors(graph: KernelGraph, results: Collection[Tensor]) -> set[Tensor]:
    """The f32 tensors inside of a kernel whose users all round what they make of them; ``results`` leave the kernel."""
    rounded: set[Tensor] = set()
    for node in reversed(graph.nodes):
        for output in node.outputs:
            tensor = output.tensor
            if tensor is None or tensor in results or not tensor.users or tensor.element != ir.F32Type.get():
                continue
            if all(_rounds_input(user, tensor, rounded) for user in tensor.users):
                rounded.add(tensor)
    return rounded


def _rounds_input(node: Node, tensor: Tensor, rounded: Collection[Tensor]) -> bool:
    """Does a node round all that it makes of one of its inputs?"""
    if not node.is_structured or tensor in node.initial:
        return False
    uses = _Uses(node, rounded)
    arguments = list(node.body.arguments)
    return all(uses.are_rounded(arguments[i]) for i, operand in enumerate(node.inputs) if operand.tensor is tensor)


# Functions through which a relative error of 2⁻²² passes without growing beyond a few times itself.  Sums and differences
# may cancel, and logarithms of numbers near 1 do, but then the result is as uncertain as the exact function's own rounding
# error makes it.
_CONTINUOUS = {
    "arith.mulf", "arith.divf", "arith.addf", "arith.subf", "arith.negf", "arith.maximumf", "arith.select", "math.log",
}  # fmt: skip


def exp2(kernel: Kernel, x: Float, *, flush: bool = False) -> Float:
    """2ˣ to 2 ulp (``ex2.approx``); ``flush``: results below 2⁻¹²⁶ become 0, which saves three instructions."""
    suffix = ".ftz" if flush else ""
    return Float(kernel.assembly(f"ex2.approx{suffix}.f32 $0, $1;", "=f,f", [x], kernel.f32))


def reciprocal(kernel: Kernel, x: Float, *, flush: bool = False) -> Float:
    """1 / x to 1 ulp (``rcp.approx``); ``flush``: as in :func:`exp2`."""
    suffix = ".ftz" if flush else ""
    return Float(kernel.assembly(f"rcp.approx{suffix}.f32 $0, $1;", "=f,f", [x], kernel.f32))


def _exp(kernel: Kernel, op: Any, value: Value, maxima: Collection[Any]) -> Any:
    """Small results are flushed where 1 is added to them, and where the row's maximum was subtracted: beside its 1 they
    vanish."""
    users = [use.owner.operation for use in op.results[0].uses]
    dwarfed = all(user.name == "arith.addf" and 1.0 in map(_constant, user.operands) for user in users)
    difference = functions.defining_op(op.operands[0])
    is_softmax = difference is not None and difference.name == "arith.subf" and difference.operands[1] in maxima
    return exp2(kernel, Float(value(op.operands[0])) * LOG2_E, flush=dwarfed or is_softmax).value


def _maxima_of_what_is_read(node: Node) -> list[Any]:
    """Arguments of a node's body that are maxima over a tensor which the node reads, too."""
    read = {operand.tensor for operand in node.inputs}
    arguments = list(node.body.arguments) if node.is_structured else []
    return [
        argument
        for argument, operand in zip(arguments, node.inputs, strict=False)
        if operand.tensor is not None
        and operand.tensor.producer is not None
        and operand.tensor.producer.reductions
        and "arith.maximumf" in operand.tensor.producer.body_ops()
        and read & {source.tensor for source in operand.tensor.producer.inputs if source.tensor is not None}
    ]


def _divide(kernel: Kernel, op: Any, value: Value) -> Any:
    """A sigmoid, 1 / (1 + …), below 2⁻¹²⁶ is 0."""
    numerator, denominator = (Float(value(operand)) for operand in op.operands)
    if _constant(op.operands[0]) == 1.0:
        producer = functions.defining_op(op.operands[1])
        sum_with_one = producer is not None and producer.name == "arith.addf" and 1.0 in map(_constant, producer.operands)
        return reciprocal(kernel, denominator, flush=sum_with_one).value
    return kernel.assembly("div.full.f32 $0, $1, $2;", "=f,f,f", [numerator, denominator], kernel.f32)


def _add(kernel: Kernel, op: Any, value: Value) -> Any:
    """``1 + erf(z)`` and ``1 + tanh(z)``, which cancel for negative z, from functions that do not; None for other sums.

    Where they are below 2⁻¹²⁶, the sums of the exact functions are 0 as well.
    """
    for function, other in (op.operands, list(op.operands)[::-1]):
        producer = functions.defining_op(function)
        if producer is None or _constant(other) != 1.0 or sum(1 for _ in function.uses) != 1:
            continue
        if producer.name == "math.erf":
            return _one_plus_erf(kernel, Float(value(producer.operands[0]))).value
        if producer.name == "math.tanh":
            power = exp2(kernel, Float(value(producer.operands[0])) * (-2 * LOG2_E), flush=True)
            return (reciprocal(kernel, power + 1.0, flush=True) * 2.0).value
    return None


def _one_plus_erf(kernel: Kernel, z: Float) -> Float:
    """erfc(-z): the complementary error function of a positive argument, mirrored for z > 0."""
    arith = dialect("arith")
    magnitude = Float(dialect("math").AbsFOp(z.value).result)
    t = reciprocal(kernel, magnitude.fma(0.5, 1.0), flush=True)
    exponent = kernel.real(_ERFC[0])
    for coefficient in _ERFC[1:]:
        exponent = exponent.fma(t, coefficient)
    tail = t * exp2(kernel, (z * z).fma(-LOG2_E, exponent), flush=True)
    negative = arith.CmpFOp(arith.CmpFPredicate.OLT, z.value, kernel.real(0.0).value).result
    return Float(arith.SelectOp(negative, tail.value, (kernel.real(2.0) - tail).value).result)


def _constant(value: Any) -> float | None:
    producer = functions.defining_op(value)
    if producer is None or producer.name != "arith.constant" or not isinstance(producer.attributes["value"], ir.FloatAttr):
        return None
    return float(ir.FloatAttr(producer.attributes["value"]).value)


_FORMS: dict[str, Callable[[Kernel, Any, Value], Any]] = {"arith.divf": _divide, "arith.addf": _add}
