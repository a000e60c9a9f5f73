"""Results that are read in two ways, held apart from what reads them when a program is handed to IREE.

IREE 3.13 puts a reduction and the elementwise op behind it into one dispatch when one reading of the result goes well with
the tiles of both.  A second reading, of the result transposed for one, then finds only what its own tile has computed:
pairwise distances, and sums of a softmax with its transpose, came out wrong.

It also fuses elementwise ops into one that reads every other element of what they give, a pooling at single positions among
these, and then computes no more of their results for whoever else reads one.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.elementwise import dynamic_sizes
from mlirstack.ir.ops import functions
from mlirstack.passes.regions import external_values
from mlirstack.schedules.linalg_ops import LinalgOp, Operand, linalg_op

_EXPAND, _COLLAPSE = "tensor.expand_shape", "tensor.collapse_shape"
RESHAPES = (_EXPAND, _COLLAPSE)

_INSERTIONS = ("tensor.insert", "tensor.insert_slice")
_DESTINATION_LAST = ("linalg.", "tm_tensor.")

_Reading = tuple[str, ...]  # for each dimension of a value the index that an op reads it at, in terms of the op's loops


def hold_shared_results(module: Any) -> None:
    """Before: ``linalg`` on tensors.  After: a value behind a reduction that an op reads in several ways, be it through
    elementwise ops and reshapes, passes a barrier, as does one that is read with steps, be it through such ops, and in
    another way; IREE fuses nothing across::

        %y = reduce %x                      →    %y = reduce %x
        generic ins(%y, %y) (d0), (d1)           %z = util.optimization_barrier %y
                                                 generic ins(%z, %z) (d0), (d1)
    """
    for function in functions(module):
        for block in function.regions[0].blocks:
            for value in _shared([op.operation for op in block.operations]):
                hold(value)


def hold(value: Any) -> None:
    """All that reads ``value`` reads it behind a barrier.

    IREE takes nothing behind a barrier for constant, and would let it be written: what is computed from weights alone stays
    as it is where an op, as a scatter, writes to it in place.
    """
    if any(map(is_written, value.uses)) and not varies(value):
        return
    op = value.owner.operation
    with ir.InsertionPoint.after(op), op.location:
        sizes = dynamic_sizes(value)
        passed = barrier(value)
        held = passed.result
        if sizes:  # of what passes a barrier nothing is known any more
            held = ir.Operation.create("flow.tensor.tie_shape", results=[value.type], operands=[held, *sizes]).result
    value.replace_all_uses_except(held, [passed, *(size.owner.operation for size in sizes)])


def barrier(value: Any) -> Any:
    """The op at the insertion point that passes ``value`` on; IREE fuses nothing across, and knows nothing of its result."""
    value.context.allow_unregistered_dialects = True
    return ir.Operation.create("util.optimization_barrier", results=[value.type], operands=[value])


def varies(value: Any) -> bool:
    """Is it computed from an argument of the function?"""
    return depends_on(value, is_argument)


def is_argument(owner: Any) -> bool:
    """Does a function give it to its body?"""
    return isinstance(owner, ir.Block) and owner.owner.operation.name == "func.func"


def depends_on(value: Any, is_source: Callable[[Any], bool]) -> bool:
    """Is ``value`` computed from one whose owner (the block or the op that gives it) is a source?"""
    queue, seen = [value], {value}
    while queue:
        owner = queue.pop().owner
        if is_source(owner):
            return True
        if not isinstance(owner, ir.Block):
            read = set(external_values(owner.operation)) - seen
            seen |= read
            queue += read
    return False


def leads_to(value: Any, name: str) -> bool:
    """Does an op of this name read ``value``, be it behind elementwise ops and reshapes?"""
    queue, seen = [value], {value}
    while queue:
        for use in queue.pop().uses:
            op = use.owner.operation
            if op.name == name:
                return True
            found = linalg_op(op)
            if op.name in RESHAPES or (found is not None and is_elementwise(found)):
                queue += [result for result in op.results if result not in seen]
                seen.update(op.results)
    return False


def is_written(use: Any) -> bool:
    """Is it the operand that an op writes its result to, as it is or reshaped?"""
    op = use.owner.operation
    if op.name in RESHAPES:
        return any(is_written(further) for further in op.results[0].uses)
    if op.name in _INSERTIONS:
        return bool(use.operand_number == 1)
    return op.name.startswith(_DESTINATION_LAST) and use.operand_number >= len(op.operands) - len(op.results)


def _shared(ops: Sequence[Any]) -> list[Any]:
    """The values to hold, for each op those that are nearest to it."""
    place = {result: number for number, op in enumerate(ops) for result in op.results}
    behind: set[Any] = set()  # a reduction, with nothing but elementwise ops and reshapes between
    held: dict[Any, None] = {}
    for op in ops:
        found = linalg_op(op)
        if found is not None:
            again = list(_read_in_several_ways(found, place, behind))
            held |= dict.fromkeys((*again, *_read_with_steps(found, place)))
            behind.difference_update(again)
        reduces = found is not None and bool(found.reductions)
        is_fused = found is not None or op.name in RESHAPES
        if reduces or (is_fused and any(value in behind for value in op.operands)):
            behind.update(op.results)
    return list(held)


def _read_with_steps(found: LinalgOp, place: dict[Any, int]) -> Iterator[Any]:
    """What an elementwise op reads by a multiple of a loop, or by a sum of some, and others read as well; of what is
    computed for it alone, what that is computed from."""
    if not is_elementwise(found):
        return
    queue = [operand.value for operand in found.inputs if operand.windows]
    while queue:
        value = queue.pop()
        if value not in place or not _has_dimensions(value.type):
            continue
        if sum(use.owner.name != "tensor.dim" for use in value.uses) > 1:
            yield value
            continue
        op = value.owner.operation
        producer = linalg_op(op)
        if op.name in RESHAPES:
            queue.append(op.operands[0])
        elif producer is not None and is_elementwise(producer):
            queue += [operand.value for operand in producer.inputs]


def _has_dimensions(kind: Any) -> bool:
    return isinstance(kind, ir.RankedTensorType) and kind.rank > 0


def is_elementwise(found: LinalgOp) -> bool:
    """Does it reduce nothing but dimensions of size 1, which IREE drops?"""
    return all(found.sizes[loop] == 1 for loop in found.reductions)


def _read_in_several_ways(found: LinalgOp, place: dict[Any, int], behind: set[Any]) -> Iterator[Any]:
    """Of the values ``behind`` reductions, those that an op depends on in several ways; nothing that only they depend on."""
    readings: dict[Any, set[_Reading]] = {}
    queue: list[tuple[int, int, Any]] = []  # later values first: all that reads a value has been seen when it is looked at

    def read(value: Any, reading: _Reading) -> None:
        if value in behind:
            if value not in readings:
                heapq.heappush(queue, (-place[value], len(readings), value))
            readings.setdefault(value, set()).add(reading)

    for operand in found.operands:
        read(operand.value, tuple(str(index) for index in operand.expressions))
    while queue:
        value = heapq.heappop(queue)[-1]
        if len(readings[value]) > 1:
            yield value
            continue
        for source, reading in _sources(value, *readings[value]):
            read(source, reading)


def _sources(value: Any, reading: _Reading) -> Iterator[tuple[Any, _Reading]]:
    """What is fused with the op behind ``value``, and where that op reads it for the part that is read at ``reading``."""
    op = value.owner.operation
    found = linalg_op(op)
    if op.name in RESHAPES:
        yield op.operands[0], _through_reshape(op, reading)
    elif found is not None and not found.reductions:
        written = found.outputs[list(op.results).index(value)]
        for operand in found.operands:
            yield operand.value, _through(operand, written, reading)


def _through(operand: Operand, written: Operand, reading: _Reading) -> _Reading:
    """Loops stand for dimensions of the result, whose indices are known."""
    loops: dict[int | None, str] = {
        loop: index for loop, index in zip(written.dims, reading, strict=True) if loop is not None
    }

    def index(loop: int | None, expression: Any) -> str:
        if isinstance(expression, ir.AffineConstantExpr):
            return str(expression)
        return loops.get(loop, f"{expression} of {reading}")

    return tuple(map(index, operand.dims, operand.expressions))


def _through_reshape(op: Any, reading: _Reading) -> _Reading:
    """Dimensions of size 1 come and go; others that are joined or split keep what was joined or split in their index."""
    longer = ir.RankedTensorType((op.results if op.name == _EXPAND else op.operands)[0].type).shape
    if not reading:  # a scalar, whose dimensions of size 1 are in no group
        return ("0",) * len(longer)
    indices: list[str] = []
    for number, group in enumerate(op.attributes["reassociation"]):
        dims = [int(dim) for dim in group]
        sizes = [longer[dim] for dim in dims]
        proper = [dim for dim in dims if longer[dim] != 1]
        if op.name == _EXPAND:
            indices.append(reading[proper[0]] if len(proper) == 1 else f"{[reading[dim] for dim in dims]} of {sizes}")
        elif len(proper) == 1:
            indices += [reading[number] if dim in proper else "0" for dim in dims]
        else:
            indices += [f"{reading[number]} of {sizes}, {dim}" if dim in proper else "0" for dim in dims]
    return tuple(indices)
