"""Keeps linalg's elementwise fusion from doing what costs more than it saves.

``rsqrt(variance)`` of a row, fused into the normalisation of the row, would be computed for every element of it; a product
behind a reshape would be taken apart into a nest that no kernel is written for.  The fusion pass takes no cost model from
here, but it only fuses a producer that has one user: a pin is a second one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import walk
from mlirstack.passes import functions
from mlirstack.passes.regions import known_shape, static_elements
from mlirstack.pipeline.step import PythonPass

_PIN = "mlirstack_pin"
_CHEAP_MATH = frozenset({"math.absf", "math.absi", "math.fma", "math.copysign"})
_BROADCAST = 4  # how many times larger a consumer must be


@dataclass(frozen=True)
class PinBroadcasts(PythonPass):
    """Before: generic ops.  After: every op with a division or a math function whose result is broadcast by its user has a
    second user, a call of ``@mlirstack_pin``.  With ``remove=true`` the pins are taken out again."""

    name = "mlirstack-pin-broadcasts"
    remove: bool = False

    def apply(self, module: Any) -> None:
        if self.remove:
            _remove_pins(module)
            return
        for op in walk(module):
            if op.name == "linalg.generic" and len(op.results) == 1 and _is_expensive(op) and _is_broadcast(op.results[0]):
                _pin(module, op)


@dataclass(frozen=True)
class PinReshapes(PythonPass):
    """Before and after: contractions with names.  Every reshape that a single product reads through (a matmul, or a batch
    of one), and every such product that is reshaped, has a second user, a call of ``@mlirstack_pin``: its loops stay one for
    rows, columns and sum each, and it stays apart from what is elementwise.  Batches are left to fusion, which takes heads
    apart and puts them together, but for factors that are gathered: they would be gathered again for every row.  With
    ``computed=true`` so are factors that are computed: they would be computed again for every row or column of the result.
    ``mlirstack-pin-broadcasts{remove=true}`` takes these pins out as well."""

    name = "mlirstack-pin-reshapes"
    computed: bool = False

    def apply(self, module: Any) -> None:
        for op in walk(module):
            if op.name not in ("linalg.matmul", "linalg.batch_matmul"):
                continue
            is_single = op.name == "linalg.matmul" or ir.RankedTensorType(op.results[0].type).shape[0] == 1
            for position, value in enumerate(op.operands):
                producer = functions.defining_op(value)
                if is_single and producer is not None and producer.name == "tensor.collapse_shape":
                    _pin(module, producer)
                elif not is_single:
                    for apart in (self.computed and _computed(op, position)) or _gathered(producer):
                        _pin(module, apart)
            users = [use.owner.operation for use in op.results[0].uses]
            if is_single and any(user.name == "tensor.expand_shape" for user in users):
                _pin(module, op)


_RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape")
# What a factor of a product may hold: a product widens its factors itself.
_MOVES = frozenset({"arith.extf", "arith.extsi", "arith.extui", "arith.sitofp", "arith.uitofp", "linalg.yield"})
_TRANSPORT = frozenset({"arith.extf", "arith.mulf", "arith.constant", "linalg.yield"})  # cheap to repeat for every row


def _gathered(op: Any | None) -> list[Any]:
    """What a factor of a product is made of that extracts elements at places that it computes: the last ops of that kind,
    before the factor is moved, widened and scaled."""
    found: list[Any] = []
    for before in _chain(op, _is_moved):
        if not _is_moved(before) and any(_extracts(one) for one in _chain(before)):
            found.append(before)
    return found


def _computed(product: Any, position: int) -> list[Any]:
    """What operand ``position`` of a product is computed by, before it is moved and widened; nothing where it is used for
    few rows or columns of the result, or nobody knows for how many."""
    *_, rows, columns = known_shape(ir.RankedTensorType(product.results[0].type))
    uses = (columns, rows, 1)[position]
    factor = functions.defining_op(product.operands[position])
    if uses is None or uses < _BROADCAST:
        return []
    return [before for before in _chain(factor, _only_moves) if not _only_moves(before)]


def _chain(op: Any | None, goes_on: Callable[[Any], bool] = lambda op: True) -> Iterator[Any]:
    """``op``, elementwise or a reshape, and such ops before it, each once; what stands before one is left out where
    ``goes_on`` is false of it."""
    pending, seen = [op], set()
    while pending:
        one = pending.pop()
        if one is None or one in seen or one.name not in ("linalg.generic", *_RESHAPES):
            continue
        seen.add(one)
        yield one
        if goes_on(one):
            pending += [functions.defining_op(operand) for operand in reversed(list(one.operands))]


def _is_moved(op: Any, by: Set[str] = _TRANSPORT) -> bool:
    return op.name in _RESHAPES or all(inner.name in by for inner in walk(op) if inner != op)


def _only_moves(op: Any) -> bool:
    return _is_moved(op, _MOVES)


def _extracts(op: Any) -> bool:
    return op.name == "linalg.generic" and any(inner.name == "tensor.extract" for inner in walk(op))


def _is_expensive(op: Any) -> bool:
    return any(
        (inner.name.startswith("math.") and inner.name not in _CHEAP_MATH) or inner.name.startswith("arith.div")
        for inner in walk(op)
    )


def _is_broadcast(value: Any) -> bool:
    """Does a generic op use it that has many more elements, directly or after a reshape?"""
    own = static_elements(value)
    for use in value.uses:
        user = use.owner.operation
        if user.name in ("tensor.expand_shape", "tensor.collapse_shape") and _is_broadcast(user.results[0]):
            return True
        if user.name == "linalg.generic" and own is not None:
            largest = max((static_elements(v) or 0 for v in user.operands), default=0)
            if largest >= _BROADCAST * max(own, 1):
                return True
    return False


def _pin(module: Any, op: Any) -> None:
    kind = op.results[0].type
    symbol = _PIN + "_" + "".join(c if c.isalnum() else "_" for c in str(kind))
    with op.location:
        functions.declare(module, {symbol: ([kind], [])})
    with ir.InsertionPoint.after(op), op.location:
        dialect("func").CallOp([], symbol, [op.results[0]])


def _remove_pins(module: Any) -> None:
    for op in walk(module):
        if op.name == "func.call" and str(ir.FlatSymbolRefAttr(op.attributes["callee"]).value).startswith(_PIN):
            op.erase()
    for f in list(functions.declarations(module)):
        if functions.name_of(f).startswith(_PIN):
            f.operation.erase()
