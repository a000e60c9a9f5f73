"""Numbers of a kernel being written: MLIR values with Python's operators, so that index arithmetic reads as arithmetic.

Operations on constants fold at once; everything else becomes one op of the arith dialect at the insertion point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Union

from mlirstack.bindings import dialect, ir

Number = Union[int, "Int"]
Real = Union[float, int, "Float"]


class Int:
    """A 32- or 64-bit integer of a kernel.  Sizes and indices are never negative: division and ``<`` are unsigned."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    @property
    def type(self) -> Any:
        """The MLIR type."""
        return self.value.type

    def wide(self) -> Int:
        """The same number with 64 bits."""
        i64 = ir.IntegerType.get_signless(64)
        return self if self.type == i64 else Int(dialect("arith").ExtUIOp(i64, self.value).result)

    def narrow(self) -> Int:
        """The low 32 bits."""
        i32 = ir.IntegerType.get_signless(32)
        return self if self.type == i32 else Int(dialect("arith").TruncIOp(i32, self.value).result)

    def index(self) -> Any:
        """As a value of type index."""
        return dialect("arith").IndexCastUIOp(ir.IndexType.get(), self.value).result

    def __add__(self, other: Number) -> Int:
        return self if other == 0 else self._binary("AddIOp", other)

    __radd__ = __add__

    def __sub__(self, other: Number) -> Int:
        return self if other == 0 else self._binary("SubIOp", other)

    def __rsub__(self, other: Number) -> Int:
        return self._lift(other) - self

    def __mul__(self, other: Number) -> Int:
        return self if other == 1 else self._binary("MulIOp", other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Number) -> Int:
        return self if other == 1 else self._binary("DivUIOp", other)

    def __mod__(self, other: Number) -> Int:
        return self._lift(0) if other == 1 else self._binary("RemUIOp", other)

    def __and__(self, other: Number) -> Int:
        return self._binary("AndIOp", other)

    def __or__(self, other: Number) -> Int:
        return self._binary("OrIOp", other)

    def __xor__(self, other: Number) -> Int:
        return self._binary("XOrIOp", other)

    def __lshift__(self, other: Number) -> Int:
        return self if other == 0 else self._binary("ShLIOp", other)

    def __rshift__(self, other: Number) -> Int:
        return self if other == 0 else self._binary("ShRUIOp", other)

    def __lt__(self, other: Number) -> Bool:
        return self._compare("ult", other)

    def __le__(self, other: Number) -> Bool:
        return self._compare("ule", other)

    def __gt__(self, other: Number) -> Bool:
        return self._compare("ugt", other)

    def __ge__(self, other: Number) -> Bool:
        return self._compare("uge", other)

    def equals(self, other: Number) -> Bool:
        """``==``, as a value (Python's ``==`` compares identities)."""
        return self._compare("eq", other)

    def differs(self, other: Number) -> Bool:
        """``!=``, as a value."""
        return self._compare("ne", other)

    def minimum(self, other: Number) -> Int:
        """The smaller one, unsigned."""
        return self._binary("MinUIOp", other)

    def maximum(self, other: Number) -> Int:
        """The larger one, unsigned."""
        return self._binary("MaxUIOp", other)

    def _lift(self, other: Number) -> Int:
        return other if isinstance(other, Int) else Int(dialect("arith").ConstantOp(self.type, other).result)

    def _binary(self, op: str, other: Number) -> Int:
        return Int(getattr(dialect("arith"), op)(self.value, self._lift(other).value).result)

    def _compare(self, predicate: str, other: Number) -> Bool:
        arith = dialect("arith")
        kind = getattr(arith.CmpIPredicate, predicate)
        return Bool(arith.CmpIOp(kind, self.value, self._lift(other).value).result)


class Bool:
    """A condition (i1) of a kernel."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __and__(self, other: Bool) -> Bool:
        return Bool(dialect("arith").AndIOp(self.value, other.value).result)

    def __or__(self, other: Bool) -> Bool:
        return Bool(dialect("arith").OrIOp(self.value, other.value).result)

    def __invert__(self) -> Bool:
        arith = dialect("arith")
        return Bool(arith.XOrIOp(self.value, arith.ConstantOp(self.value.type, 1).result).result)

    def select(self, yes: Any, no: Any) -> Any:
        """``yes`` where the condition holds, else ``no``: two :class:`Int`, :class:`Float` or MLIR values of one type."""
        raw = [getattr(v, "value", v) for v in (yes, no)]
        result = dialect("arith").SelectOp(self.value, *raw).result
        return type(yes)(result) if isinstance(yes, (Int, Float)) else result


class Float:
    """A floating-point number of a kernel; no fast-math unless a method says so."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    @property
    def type(self) -> Any:
        """The MLIR type."""
        return self.value.type

    def __add__(self, other: Real) -> Float:
        return self._binary("AddFOp", other)

    __radd__ = __add__

    def __sub__(self, other: Real) -> Float:
        return self._binary("SubFOp", other)

    def __mul__(self, other: Real) -> Float:
        return self._binary("MulFOp", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Real) -> Float:
        return self._binary("DivFOp", other)

    def __neg__(self) -> Float:
        return Float(dialect("arith").NegFOp(self.value).result)

    def fma(self, factor: Real, summand: Real) -> Float:
        """``self * factor + summand``, rounded once.  ``math.fma`` would become a call into libdevice."""
        return Float(dialect("llvm").FMAOp(self.value, self._lift(factor).value, self._lift(summand).value).res)

    def max_ignoring_nan(self, other: Real) -> Float:
        """The larger number; the other one where one is NaN (``max.f32``)."""
        return Float(dialect("llvm").MaxNumOp(self.value, self._lift(other).value).res)

    def maximum(self, other: Real) -> Float:
        """The larger number; NaN where either is NaN, as torch has it."""
        return self._binary("MaximumFOp", other)

    def __le__(self, other: Real) -> Bool:
        return self._compare("OLE", other)

    def equals(self, other: Real) -> Bool:
        """``==``, as a value; False for NaN."""
        return self._compare("OEQ", other)

    def to(self, kind: Any) -> Float:
        """Rounded or extended to the MLIR float type ``kind``."""
        arith, width = dialect("arith"), kind.width
        if self.type == kind:
            return self
        op = arith.ExtFOp if width > self.type.width else arith.TruncFOp
        return Float(op(kind, self.value).result)

    def _lift(self, other: Real) -> Float:
        return other if isinstance(other, Float) else Float(dialect("arith").ConstantOp(self.type, float(other)).result)

    def _compare(self, predicate: str, other: Real) -> Bool:
        arith = dialect("arith")
        kind = getattr(arith.CmpFPredicate, predicate)
        return Bool(arith.CmpFOp(kind, self.value, self._lift(other).value).result)

    def _binary(self, op: str, other: Real) -> Float:
        return Float(getattr(dialect("arith"), op)(self.value, self._lift(other).value).result)


def tree(combine: Callable[[Any, Any], Any], values: list[Any]) -> Any:
    """``values`` combined pairwise: the shortest chain of dependent operations.  ``values`` must not be empty."""
    while len(values) > 1:
        pairs = [combine(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = pairs + (values[-1:] if len(values) % 2 else [])
    return values[0]
