"""Reshapes of dynamic shapes in ONNX models, in terms that torch-mlir cannot misread.

Its conversion of ``aten.view`` pairs dimensions by their sizes, and takes those between them for 1: heads
``[length, batch, 2, 4]`` joined to ``[length * batch, 8]`` were read as if there were one batch, without an error.
:mod:`mlirstack.frontend.dynamic_views` mends that in graphs of torch.export, whose sizes are symbols; an ONNX file has
operators that compute them, which are followed here as far as they tell which dimensions are merged and which are split.
Where they do not, all are merged and split again, and the number of elements is checked at run time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import sympy  # type: ignore[import-untyped]

from mlirstack.bindings import ir
from mlirstack.frontend.dynamic_views import Group, is_ambiguous, matched_groups
from mlirstack.frontend.reshapes import builtin_type
from mlirstack.ir.ops import walk
from mlirstack.pipeline.step import PythonPass

_VIEW = "torch.aten.view"


@dataclass(frozen=True)
class NameReshapes(PythonPass):
    """Before: ``torch.aten.view`` of tensors with dynamic dimensions.  After: ``torch.aten.flatten.using_ints`` and
    ``torch.aten.unflatten.int`` where dimensions of unknown size are merged or split.

    Sizes may be -1 in a call; an assertion fails there if the elements do not fit.
    """

    name: ClassVar[str] = "mlirstack-name-reshapes"

    def apply(self, module: Any) -> None:
        """Rewrite each such view."""
        sizes = _Sizes()
        views = [op for op in walk(module) if op.name == _VIEW and op.operands[1].owner.name == "torch.prim.ListConstruct"]
        plans = [(op, _plan(op, sizes)) for op in views]  # all before one is rewritten, and tells nothing any more
        for op, plan in plans:
            if plan is not None:
                with ir.InsertionPoint(op), op.location:
                    _rewrite(op, plan)


@dataclass(frozen=True)
class _Plan:
    """What becomes of a view's dimensions, and whether the last group's sizes are known to fit."""

    groups: tuple[Group, ...]
    is_known: bool


def _plan(op: Any, sizes: _Sizes) -> _Plan | None:
    """None where torch-mlir reads the view rightly."""
    source, result = _shape(op.operands[0]), _shape(op.results[0])
    if source is None or result is None or 0 in source or None not in (*source, *result):
        return None
    before, after = sizes.of_tensor(op.operands[0]), sizes.of_tensor(op.results[0])
    groups = matched_groups(before, after)
    last = groups[-1]
    is_known = _product(before, last.before) == _product(after, last.after)
    if is_known and not any(is_ambiguous(group, before, after) for group in groups):
        return None
    while not is_known and not (last.before and last.after) and len(groups) > 1:
        last = Group((*groups[-2].before, *last.before), (*groups[-2].after, *last.after))
        groups[-2:] = [last]
    return _Plan(tuple(groups), is_known)


def _rewrite(op: Any, plan: _Plan) -> None:
    value = op.operands[0]
    for group in reversed(plan.groups):  # from the last to the first, so that the positions of the others stay
        value = _regroup(op, value, group, is_checked=not plan.is_known and group is plan.groups[-1])
    op.results[0].replace_all_uses_with(_cast(value, op.results[0].type))
    op.erase()


def _product(sizes: Sequence[Any], places: Sequence[int]) -> Any:
    return sympy.expand(math.prod(sizes[place] for place in places))


def _regroup(op: Any, value: Any, group: Group, *, is_checked: bool) -> Any:
    """``value`` with the dimensions ``group.before`` in the shape that the view gives them."""
    wanted = _shape(op.results[0])
    assert wanted is not None
    split = [wanted[place] for place in group.after]
    if not group.before:  # dimensions of size 1 at the end
        for _ in split:
            value = _call("torch.aten.unsqueeze", value, [_int(-1)], [*_known_shape(value), 1])
        return value
    axis = group.before[0]
    if not group.after:
        shape = _known_shape(value)
        for place in reversed(group.before):
            shape = [*shape[:place], *shape[place + 1 :]]
            value = _call("torch.aten.squeeze.dim", value, [_int(place)], shape)
        return value
    numbers = _numbers(op, group) if is_checked or len(split) > 1 else []
    if is_checked:
        elements = _prod([_int_size(op.operands[0], place) for place in group.before])
        _assert(_torch("torch.aten.eq.int", "bool", elements, _prod(numbers)), "the elements of a tensor fit its new shape")
    shape = _known_shape(value)
    merged = shape[axis : axis + len(group.before)]
    if len(group.before) > 1:
        shape = [*shape[:axis], _static_product(merged), *shape[axis + len(merged) :]]
        value = _call("torch.aten.flatten.using_ints", value, [_int(axis), _int(axis + len(merged) - 1)], shape)
    whole = _static_product(split)
    if whole is not None or len(split) > 1:
        shape = [*shape[:axis], whole, *shape[axis + 1 :]]
        value = _cast(value, _like(value, shape))
    if len(split) > 1:
        listed = _torch("torch.prim.ListConstruct", "list<int>", *numbers)
        value = _call("torch.aten.unflatten.int", value, [_int(axis), listed], [*shape[:axis], *split, *shape[axis + 1 :]])
    return value


def _numbers(op: Any, group: Group) -> list[Any]:
    """The sizes of the dimensions ``group.after`` as values, those that are -1 replaced."""
    given = list(op.operands[1].owner.operands)
    wanted = _shape(op.results[0])
    assert wanted is not None
    sizes = [(given[place], wanted[place]) for place in group.after]
    listed = [value if size is None else _int(size) for value, size in sizes]
    literal = [_literal(number) for number in listed]
    elements = _prod([_int_size(op.operands[0], place) for place in group.before])
    if -1 in literal:
        others = _prod([number for number, known in zip(listed, literal, strict=True) if known != -1])
        _assert(_torch("torch.aten.gt.int", "bool", others, _int(0)), "a size that is -1 stands beside others than 0")
        left = _torch("torch.aten.floordiv.int", "int", elements, others)
        return [left if known == -1 else number for number, known in zip(listed, literal, strict=True)]
    if all(_is_size(number) for number in listed):
        return listed
    # Any may be -1 in a call; the product of all is then that of the others with the other sign.
    product = _prod(listed)
    _assert(_torch("torch.aten.ne.int", "bool", product, _int(0)), "a tensor with elements keeps them in its new shape")
    left = _torch("torch.aten.neg.int", "int", _torch("torch.aten.floordiv.int", "int", elements, product))
    return [number if _is_size(number) else _replaced(number, left) for number in listed]


def _replaced(number: Any, left: Any) -> Any:
    """``left`` where ``number`` is -1, ``number`` elsewhere; less than 0 is an error at run time."""
    is_open = _torch("torch.aten.Int.bool", "int", _torch("torch.aten.eq.int", "bool", number, _int(-1)))
    more = _torch("torch.aten.add.int", "int", left, _int(1))
    found = _torch("torch.aten.add.int", "int", number, _torch("torch.aten.mul.int", "int", is_open, more))
    _assert(_torch("torch.aten.ge.int", "bool", found, _int(0)), "one size of a new shape at most is -1")
    return found


# -------------------------------------------------------------------------------------------------------------- sizes


@dataclass
class _Sizes:
    """Sizes as numbers and sympy's expressions; equal ones are equal in any call."""

    symbols: dict[tuple[Any, int], Any] = field(default_factory=dict)

    def of_tensor(self, tensor: Any) -> list[Any]:
        """Those of a tensor whose rank is known."""
        return [self._dimension(tensor, place) for place in range(len(_shape(tensor) or ()))]

    def _symbol(self, value: Any, place: int) -> Any:
        key = value, place
        return self.symbols.setdefault(key, sympy.Symbol(f"n{len(self.symbols)}", integer=True, positive=True))

    def _dimension(self, tensor: Any, place: int) -> Any:
        shape = _shape(tensor)
        if shape is not None and shape[place] is not None:
            return shape[place]
        maker = tensor.owner
        found = None if isinstance(maker, ir.Block) or shape is None else self._derived(maker, place, len(shape))
        return self._symbol(tensor, place) if found is None else found

    def _derived(self, maker: Any, place: int, rank: int) -> Any:
        """The size of dimension ``place`` of what ``maker`` gives, by those of its operands; None where they do not tell."""
        if maker.name == _VIEW and maker.operands[1].owner.name == "torch.prim.ListConstruct":
            return self._viewed(maker, place)
        if maker.name == "torch.aten.transpose.int":
            axes = [_literal(value) for value in list(maker.operands)[1:]]
            if None in axes:
                return None
            first, second = (axis % rank for axis in axes if axis is not None)
            return self._dimension(maker.operands[0], {first: second, second: first}.get(place, place))
        if maker.name in ("torch.aten.add.Tensor", "torch.aten.mul.Tensor"):
            other = _shape(maker.operands[1])
            own = _shape(maker.operands[0])
            if own is None or other is None or len(own) < rank:
                return None
            beside = place - rank + len(other)
            return self._dimension(maker.operands[0], place) if beside < 0 or other[beside] == 1 else None
        if maker.name == "torch.aten.matmul" and place < rank - 1:
            right = _shape(maker.operands[1])
            return self._dimension(maker.operands[0], place) if right is not None and len(right) == 2 else None
        return None

    def _viewed(self, view: Any, place: int) -> Any:
        sizes = [self._number(value) for value in view.operands[1].owner.operands]
        if sizes[place] != -1:
            return sizes[place]
        if any(size is None for size in sizes):
            return None
        others = math.prod(size for at, size in enumerate(sizes) if at != place)
        found = sympy.together(math.prod(self.of_tensor(view.operands[0])) / sympy.sympify(others)) if others else None
        return found if found is not None and sympy.denom(found) == 1 else None

    def _number(self, value: Any) -> Any:
        """A ``!torch.int``, or None where it may be -1."""
        literal = _literal(value)
        if literal is not None:
            return literal
        maker = value.owner
        if isinstance(maker, ir.Block):
            return None
        if maker.name == "torch.aten.size.int":
            place = _literal(maker.operands[1])
            shape = _shape(maker.operands[0])
            return None if place is None or shape is None else self._dimension(maker.operands[0], place % len(shape))
        if maker.name == "torch.aten.mul.int":
            factors = [self._number(factor) for factor in maker.operands]
            return None if None in factors or -1 in factors else math.prod(factors)
        return None


def _is_size(value: Any) -> bool:
    """Is a ``!torch.int`` known not to be negative?"""
    literal = _literal(value)
    if literal is not None:
        return literal >= 0
    maker = value.owner
    if isinstance(maker, ir.Block) or maker.name not in ("torch.aten.size.int", "torch.aten.mul.int"):
        return False
    return maker.name == "torch.aten.size.int" or all(_is_size(factor) for factor in maker.operands)


def _shape(tensor: Any) -> list[int | None] | None:
    """Sizes by the type, None for a dynamic one; None where the rank or the dtype is not known."""
    kind = builtin_type(tensor.type)
    if kind is None:
        return None
    return [None if size == ir.ShapedType.get_dynamic_size() else size for size in kind.shape]


def _known_shape(tensor: Any) -> list[int | None]:
    shape = _shape(tensor)
    assert shape is not None
    return shape


def _static_product(sizes: Sequence[int | None]) -> int | None:
    return None if None in sizes else math.prod(size for size in sizes if size is not None)


# ----------------------------------------------------------------------------------------------------------- operations


def _literal(value: Any) -> int | None:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "torch.constant.int":
        return None
    return int(ir.IntegerAttr(owner.attributes["value"]).value)


def _torch(name: str, kind: str, *operands: Any) -> Any:
    return ir.Operation.create(name, results=[ir.Type.parse(f"!torch.{kind}")], operands=list(operands)).result


def _int(number: int) -> Any:
    attribute = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)
    kind = ir.Type.parse("!torch.int")
    return ir.Operation.create("torch.constant.int", results=[kind], attributes={"value": attribute}).result


def _int_size(tensor: Any, place: int) -> Any:
    return _torch("torch.aten.size.int", "int", tensor, _int(place))


def _prod(numbers: Sequence[Any]) -> Any:
    product = None
    for number in numbers:
        product = number if product is None else _torch("torch.aten.mul.int", "int", product, number)
    return _int(1) if product is None else product


def _assert(condition: Any, message: str) -> None:
    attributes = {"message": ir.StringAttr.get(message)}
    ir.Operation.create("torch.runtime.assert", results=[], operands=[condition], attributes=attributes)


def _like(value: Any, shape: Sequence[int | None]) -> Any:
    """The type of ``value`` with other sizes."""
    sizes = ",".join("?" if size is None else str(size) for size in shape)
    return ir.Type.parse(f"!torch.vtensor<[{sizes}],{str(value.type).rpartition(',')[2]}")


def _call(name: str, value: Any, operands: Sequence[Any], shape: Sequence[int | None]) -> Any:
    return ir.Operation.create(name, results=[_like(value, shape)], operands=[value, *operands]).result


def _cast(value: Any, kind: Any) -> Any:
    if value.type == kind:
        return value
    return ir.Operation.create("torch.tensor_static_info_cast", results=[kind], operands=[value]).result
