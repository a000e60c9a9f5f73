"""Elementary functions on vectors: polynomials where mlirstack has one, calls of the C library's vector functions where
the library has them, scalar functions element by element otherwise.

In come ``math`` ops on vectors of any length; what is left after it are ``math`` ops that LLVM has vector instructions for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from mlirstack.bindings import dialect, ir, rewrite
from mlirstack.passes.functions import declare
from mlirstack.passes.polynomials import POLYNOMIALS
from mlirstack.passes.runtime_libraries import resolve
from mlirstack.pipeline.step import PythonPass

# math op → name of the C function on doubles; the one on floats has an f behind it.
C_NAMES = {
    "math.exp": "exp", "math.exp2": "exp2", "math.expm1": "expm1", "math.log": "log", "math.log2": "log2",
    "math.log10": "log10", "math.log1p": "log1p", "math.sin": "sin", "math.cos": "cos", "math.tan": "tan",
    "math.asin": "asin", "math.acos": "acos", "math.atan": "atan", "math.sinh": "sinh", "math.cosh": "cosh",
    "math.tanh": "tanh", "math.asinh": "asinh", "math.acosh": "acosh", "math.atanh": "atanh", "math.erf": "erf",
    "math.erfc": "erfc", "math.cbrt": "cbrt", "math.powf": "pow", "math.atan2": "atan2",
}  # fmt: skip
_ISA = {128: "b", 256: "d", 512: "e"}  # x86 vector ABI: SSE, AVX2, AVX-512
_PADDING = 1.0  # every function is defined there


def vector_symbol(function: str, bits: int, element_bits: int, arguments: int) -> str:
    """The name that the x86-64 vector function ABI gives to a function over ``bits``-wide registers (``_ZGVdN8v_expf``)."""
    return f"_ZGV{_ISA[bits]}N{bits // element_bits}{'v' * arguments}_{function}{'f' if element_bits == 32 else ''}"


def vector_functions() -> tuple[str, ...]:
    """The vector functions that a C library of this machine has, of those that mlirstack would call."""
    names = []
    for op, function in C_NAMES.items():
        arguments = 2 if op in ("math.powf", "math.atan2") else 1
        for bits in _ISA:
            for element_bits in (32, 64):
                names.append(vector_symbol(function, bits, element_bits, arguments))
    return tuple(name for name in names if resolve(name) is not None)


@dataclass(frozen=True)
class VectorMath(PythonPass):
    """Before: ``math`` ops on vectors.  After: no elementary function on a vector is left.

    ``vector_bits``: the widest register that may be used; ``functions``: symbols of the vector functions that may be called
    (default: those that the C library of this machine has); ``polynomials``: use mlirstack's own for exp, erf, tanh on f32.
    """

    name: ClassVar[str] = "mlirstack-vector-math"
    vector_bits: int = 256
    polynomials: bool = True
    functions: tuple[str, ...] = ("host",)

    def apply(self, module: Any) -> None:
        available = frozenset(vector_functions() if self.functions == ("host",) else self.functions)
        called: dict[str, Any] = {}
        patterns = rewrite().RewritePatternSet()
        for name in C_NAMES:
            patterns.add(name, _Expansion(self, available, called))
        for name in ("arith.maximumf", "arith.minimumf"):
            patterns.add(name, _ignore_sign_of_zero)
        rewrite().walk_and_apply_patterns(module.operation, patterns.freeze())
        declare(module, called)


def _ignore_sign_of_zero(op: Any, rewriter: Any) -> bool:
    """Let max(-0, +0) be either zero: x86 has no instruction that orders them, and torch does not define it."""
    operation = op.operation
    relaxed = ir.Attribute.parse("#arith.fastmath<nsz>")
    if not isinstance(operation.results[0].type, ir.VectorType) or operation.attributes["fastmath"] == relaxed:
        return True
    operation.attributes["fastmath"] = relaxed
    return False


@dataclass(frozen=True)
class _Expansion:
    """The pattern: a callable that rewrites one math op, and returns True where it does not apply."""

    step: VectorMath
    available: frozenset[str]
    called: dict[str, Any]

    def __call__(self, op: Any, rewriter: Any) -> bool:
        kind = op.operation.results[0].type
        if not isinstance(kind, ir.VectorType) or any(kind.scalable_dims):
            return True
        with rewriter.ip, op.operation.location:
            rewriter.replace_op(op, [self.expand(op.operation.name, list(op.operation.operands))])
        return False

    def expand(self, name: str, operands: list[Any]) -> Any:
        """The value of function ``name`` over vectors of any element type and rank."""
        kind = operands[0].type
        element = kind.element_type
        if element.width < 32:
            wide = ir.VectorType.get(kind.shape, ir.F32Type.get())
            arith = dialect("arith")
            return arith.truncf(kind, self.expand(name, [arith.extf(wide, operand) for operand in operands]))
        if name == "math.powf":
            power = _small_power(*operands)
            if power is not None:
                return power
        if self.step.polynomials and name in POLYNOMIALS and element.width == 32:
            return POLYNOMIALS[name](*operands)
        if len(kind.shape) != 1:
            return _by_rows(lambda rows: self.expand(name, rows), operands)
        widths = [bits for bits in (512, 256, 128) if bits <= self.step.vector_bits]
        symbols = {
            bits // element.width: symbol
            for bits in widths
            if (symbol := vector_symbol(C_NAMES[name], bits, element.width, len(operands))) in self.available
        }
        return self._by_pieces(name, operands, symbols)

    def _by_pieces(self, name: str, operands: list[Any], symbols: dict[int, str]) -> Any:
        """Cut a vector into what the functions take; the last piece is padded, single elements are scalars."""
        kind, vector = operands[0].type, dialect("vector")
        length = kind.shape[0]
        result = operands[0]
        at = 0
        while at < length:
            rest = length - at
            fitting = [lanes for lanes in symbols if lanes <= rest] or [lanes for lanes in symbols if rest > 1]
            if not fitting:
                scalars = [vector.extract(operand, [], [at]) for operand in operands]
                value = _scalar(name, scalars)
                result = vector.insert(value, result, [], [at])
                at += 1
                continue
            lanes = max(fitting) if max(fitting) <= rest else min(fitting)
            count = min(lanes, rest)
            pieces = [_piece(operand, at, count, lanes) for operand in operands]
            value = self._call(symbols[lanes], pieces)
            if count == length == lanes:
                return value
            result = _insert(_piece(value, 0, count, count), result, at)
            at += count
        return result

    def _call(self, symbol: str, operands: list[Any]) -> Any:
        kind = operands[0].type
        self.called[symbol] = ir.FunctionType.get([kind] * len(operands), [kind])
        return dialect("func").call([kind], symbol, operands)


def _small_power(base: Any, exponent: Any) -> Any | None:
    """x to the power of a constant that takes a few multiplications or a square root; None for any other exponent."""
    owner = exponent.owner
    if not isinstance(owner, (ir.Operation, ir.OpView)) or owner.operation.name != "arith.constant":
        return None
    value = owner.operation.attributes["value"]
    if not isinstance(value, ir.DenseElementsAttr) or not value.is_splat:
        return None
    number = float(ir.FloatAttr(value.get_splat_value()).value)
    arith, math = dialect("arith"), dialect("math")
    if number == 0.5:
        return math.sqrt(base)
    if number not in (1.0, 2.0, 3.0, 4.0):
        return None
    square = arith.mulf(base, base) if number > 1 else base
    if number == 3:
        return arith.mulf(square, base)
    return arith.mulf(square, square) if number == 4 else square


def _scalar(name: str, operands: list[Any]) -> Any:
    return ir.Operation.create(name, results=[operands[0].type], operands=operands).results[0]


def _by_rows(function: Callable[[list[Any]], Any], operands: list[Any]) -> Any:
    """Apply ``function`` to each slice along the first dimension; a vector of rank 0 is one of length 1."""
    vector = dialect("vector")
    kind = operands[0].type
    if not kind.shape:
        flat = ir.VectorType.get([1], kind.element_type)
        value = function([vector.broadcast(flat, operand) for operand in operands])
        return vector.shape_cast(kind, value)
    result = operands[0]
    for row in range(kind.shape[0]):
        value = function([vector.extract(operand, [], [row]) for operand in operands])
        result = vector.insert(value, result, [], [row])
    return result


def _piece(value: Any, at: int, count: int, lanes: int) -> Any:
    """Elements ``at`` to ``at + count`` of a vector of rank one, padded to ``lanes``."""
    vector, kind = dialect("vector"), value.type
    piece = value
    if kind.shape[0] != count:
        cut = ir.VectorType.get([count], kind.element_type)
        piece = vector.extract_strided_slice(cut, value, [at], [count], [1])
    if count == lanes:
        return piece
    padded = ir.VectorType.get([lanes], kind.element_type)
    splat = ir.DenseElementsAttr.get_splat(padded, ir.FloatAttr.get(kind.element_type, _PADDING))
    return _insert(piece, dialect("arith").constant(padded, splat), 0)


def _insert(piece: Any, into: Any, at: int) -> Any:
    if piece.type == into.type:
        return piece
    return dialect("vector").insert_strided_slice(piece, into, [at], [1])
