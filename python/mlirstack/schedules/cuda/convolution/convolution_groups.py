"""Which ops around a convolution belong to its kernel: the zeros around its image, what it starts from, what comes after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.passes import functions

Takes = Callable[[Sequence[Any]], bool]


def convolution_groups(operations: Sequence[Any], takes: Takes) -> list[list[Any]]:
    """The largest group around every convolution among ``operations`` (of one block, in order) that ``takes`` accepts.

    Inside of a group every result has one use, so that a group leaves the results of its last op alone.  Convolutions whose
    image is the begin of a larger one read that one instead.
    """
    for op in operations:  # first of all: the hash of an op changes with its operands
        if _is_window_op(op):
            _read_whole_image(op)
    order = {op: position for position, op in enumerate(operations)}
    groups: list[list[Any]] = []
    taken: set[Any] = set()
    for op in operations:
        if op in taken or not _is_window_op(op):
            continue
        group = _around(op, order, takes, taken)
        if group is not None:
            groups.append(group)
            taken.update(group)
    return groups


def _around(op: Any, order: dict[Any, int], takes: Takes, taken: set[Any]) -> list[Any] | None:
    before = [producer for producer in _producers(op) if producer in order and producer not in taken]
    choices: tuple[list[Any], ...] = ([*before], [p for p in before if p.name != "tensor.insert_slice"], [])
    group = next((found for start in choices if takes(found := _sorted([*start, op], order))), None)
    if group is None:
        return None
    last = op
    while (user := _only_user(last)) is not None and user in order and user not in taken and _is_elementwise(user):
        if not takes(longer := _sorted([*group, user], order)):
            break
        group, last = longer, user
    return group


def _read_whole_image(op: Any) -> None:
    """Let a convolution read what its image is a slice of: what a stride leaves unread at the end need not be cut off.

    A sum of loops may end before the dimension that it indexes does; a plain loop may not.
    """
    affine = _maps(op)[0]
    while (cut := functions.defining_op(op.operands[0])) is not None and cut.name == "tensor.extract_slice":
        offsets, steps = (tuple(ir.DenseI64ArrayAttr(cut.attributes[f"static_{name}"])) for name in ("offsets", "strides"))
        source, image = (ir.ShapedType(value.type) for value in (cut.operands[0], op.operands[0]))
        if any(offsets) or set(steps) != {1} or source.rank != image.rank:
            return
        plain = [isinstance(expression, ir.AffineDimExpr) for expression in affine.results]
        if any(p and a != b for p, a, b in zip(plain, source.shape, image.shape, strict=True)):
            return
        op.operands[0] = cut.operands[0]


def _sorted(ops: Sequence[Any], order: dict[Any, int]) -> list[Any]:
    return sorted(ops, key=lambda op: order[op])


def _producers(op: Any) -> list[Any]:
    """What pads the image, and what makes the initial value, where nothing else reads it."""
    image, *_, initial = op.operands
    found = []
    for value, is_wanted in ((image, _is_padding), (initial, _is_elementwise)):
        producer = functions.defining_op(value)
        if producer is not None and is_wanted(producer) and len(list(value.uses)) == 1:
            found.append(producer)
    return found


def _is_padding(op: Any) -> bool:
    return bool(op.name == "tensor.insert_slice")


def _is_window_op(op: Any) -> bool:
    """Has it a reduction, and an input whose index is a sum of loops?"""
    maps = _maps(op)
    if len(maps) != 3 or len(op.results) != 1:
        return False
    sums = (ir.AffineAddExpr, ir.AffineMulExpr)
    written = {e.position for e in maps[-1].results if isinstance(e, ir.AffineDimExpr)}
    return len(written) < maps[0].n_dims and any(isinstance(e, sums) for affine in maps for e in affine.results)


def _is_elementwise(op: Any) -> bool:
    maps = _maps(op)
    return bool(maps) and op.name != "linalg.fill" and len(maps[-1].results) == maps[-1].n_dims


def _maps(op: Any) -> list[Any]:
    if not op.name.startswith("linalg."):
        return []
    maps = dialect("linalg").get_indexing_maps(op)
    return [ir.AffineMapAttr(affine).value for affine in maps] if maps is not None else []


def _only_user(op: Any) -> Any | None:
    """The op that reads the result, where it is read once, in the same block."""
    uses = list(op.results[0].uses) if len(op.results) == 1 else []
    user = uses[0].owner.operation if len(uses) == 1 else None
    return user if user is not None and user.block == op.block else None
