"""Destinations of their own for ops that write in place, where something else is computed from what they write to.

IREE 3.13 forgets that such an op must wait: it leaves out the copy for the last op that reads a value, and then lets that
one go first.  What is computed from nothing, as the places of a sort, it computes once for each op that writes to it or
reads it, finds that these computations are alike, and keeps one of them: two sorts then sort the same places.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.elementwise import elementwise
from mlirstack.ir.ops import walk
from mlirstack.passes.functions import defining_op, entry_points
from mlirstack.passes.iree.readings import RESHAPES, barrier, depends_on, is_argument, is_written
from mlirstack.schedules.linalg_ops import linalg_op

_MADE_AS_NEEDED = ("linalg.fill", "tensor.empty", "tensor.splat", "arith.constant")


def own_written_values(module: Any) -> None:
    """Before: an op writes to what others read, or to what an elementwise op computes from nothing.  After: to a copy that
    nothing else is like, for it depends on a number of which IREE knows nothing::

        %places = generic { index 0 }          →      %places = generic { index 0 }
        tm_tensor.sort outs(%x, %places)              %unknown = util.optimization_barrier 3
                                                      %own = generic ins(%places) { %in xor %unknown xor 3 }
                                                      tm_tensor.sort outs(%x, %own)
    """
    numbers = count(1)
    given = [argument for function in entry_points(module) for argument in function.regions[0].blocks[0].arguments]
    values = [value for value in (*given, *(v for op in walk(module) for v in op.results)) if _is_shared(value)]
    written = [(value, use) for value in values for use in value.uses if use.owner.name not in RESHAPES and is_written(use)]
    for value, use in written:
        use.owner.operands[use.operand_number] = _own(value, use.owner, numbers)


def _is_shared(value: Any) -> bool:
    """May what is written to it be found by others?  Fills of one number are made as they are needed."""
    source = _unshaped(value)
    op = defining_op(source)
    if _element(source) is None or (op is not None and op.name in _MADE_AS_NEEDED):
        return False
    if len(list(_readers(source))) > 1:
        return True
    if op is None:
        return False
    found = linalg_op(op)
    return found is not None and not found.reductions and not depends_on(source, _is_given)


def _unshaped(value: Any) -> Any:
    op = defining_op(value)
    return _unshaped(op.operands[0]) if op is not None and op.name in RESHAPES else value


def _readers(value: Any) -> Iterator[Any]:
    """The ops that read ``value``, reshaped or not; its sizes are no reading."""
    for use in value.uses:
        if use.owner.name in RESHAPES:
            yield from _readers(use.owner.results[0])
        elif use.owner.name != "tensor.dim":
            yield use.owner


def _is_given(owner: Any) -> bool:
    """Is it an argument, or a parameter?"""
    return is_argument(owner) or (not isinstance(owner, ir.Block) and owner.name.startswith("util.global"))


def _element(value: Any) -> Any | None:
    """The type of the elements of a tensor of real numbers."""
    if not isinstance(value.type, ir.RankedTensorType):
        return None
    kind = value.type.element_type
    return None if isinstance(kind, (ir.ComplexType, ir.IndexType)) else kind


def _own(value: Any, user: Any, numbers: Iterator[int]) -> Any:
    """A copy of ``value`` before ``user``."""
    arith = dialect("arith")
    element = ir.RankedTensorType(value.type).element_type
    bits = ir.IntegerType.get_signless(element.width, value.context)
    with ir.InsertionPoint(user), user.location:
        known = arith.constant(bits, next(numbers) % 2**bits.width)
        # The same barrier twice is one to IREE: what passes it differs from op to op.
        unknown = barrier(known).result

        def same(x: Any) -> Any:
            held = x if element == bits else arith.bitcast(bits, x)
            held = arith.xori(arith.xori(held, unknown), known)
            return held if element == bits else arith.bitcast(element, held)

        return elementwise([value], element, same)
