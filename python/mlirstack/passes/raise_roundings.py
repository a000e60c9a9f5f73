"""Roundings to 16 bits, moved from the ops that read a product to the product itself.

Fusion of elementwise ops leaves ``truncf`` where a product's result is used: after a repetition of heads, or in what
multiplies two products.  The product would be written to memory as f32, twice the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir import kernels
from mlirstack.ir.ops import walk
from mlirstack.passes.kernel_class import kernel_class
from mlirstack.passes.regions import clone_with
from mlirstack.pipeline.step import PythonPass

_VIEWS = ("tensor.expand_shape", "tensor.collapse_shape")
_PRODUCTS = (kernels.CONTRACTION, kernels.CONVOLUTION)


@dataclass(frozen=True)
class RaiseRoundings(PythonPass):
    """Before and after: linalg on tensors.  A product in f32 that all readers, behind views or not, only round to one
    narrower type is rounded once, right behind it::

        %p = product; generic ins(%p) { truncf; … }      →      %r = generic ins(%p) { truncf }; generic ins(%r) { … }
    """

    name = "mlirstack-raise-roundings"

    def apply(self, module: Any) -> None:
        products = [op for op in walk(module) if op.name == "linalg.generic" and kernel_class(op) in _PRODUCTS]
        for op in reversed(products):  # one that reads another is replaced when that one is rounded
            narrow = _narrow_type(op.results[0])
            if narrow is not None:
                _replace(op.results[0], _rounded(op, narrow), narrow)


def _narrow_type(value: Any) -> Any | None:
    """The type that everything that reads ``value`` rounds it to; None where there is not one such type."""
    found = list(_readers(value))
    types = {operation.results[0].type for readings in found if readings for operation in readings}
    return types.pop() if len(types) == 1 and all(found) else None


def _readers(value: Any) -> Iterator[list[Any]]:
    """For each op that reads ``value``: its roundings of it, empty if it does anything else with it."""
    for use in value.uses:
        user = use.owner.operation
        if user.name in _VIEWS:
            yield from _readers(user.results[0])
        elif user.name != "linalg.generic" or use.operand_number >= len(user.operands) - len(user.results):
            yield []
        else:
            inner = _scalar_users(user, use.operand_number)
            yield inner if all(op.name == "arith.truncf" for op in inner) else []


def _scalar_users(op: Any, number: int) -> list[Any]:
    return [use.owner.operation for use in op.regions[0].blocks[0].arguments[number].uses]


def _rounded(op: Any, narrow: Any) -> Any:
    """The result of a product, rounded."""
    value = op.results[0]
    kind = ir.RankedTensorType(value.type)
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(kind.rank))
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    with ir.InsertionPoint(_next(op)), op.location:
        empty = dialect("tensor").EmptyOp(list(kind.shape), narrow).result
        new = dialect("linalg").GenericOp(
            [empty.type], [value], [empty], ir.ArrayAttr.get([identity, identity]), ir.ArrayAttr.get([parallel] * kind.rank)
        )
        block = new.regions[0].blocks.append(kind.element_type, narrow)
        with ir.InsertionPoint(block):
            dialect("linalg").YieldOp([dialect("arith").TruncFOp(narrow, block.arguments[0]).result])
    return new.results[0]


def _next(op: Any) -> Any:
    operations = [other.operation for other in op.block.operations]
    return operations[operations.index(op) + 1]


def _replace(wide: Any, rounded: Any, narrow: Any) -> None:
    """Let all that reads ``wide`` and rounds it read ``rounded``."""
    while (use := next((use for use in wide.uses if use.owner.operation != rounded.owner), None)) is not None:
        user = use.owner.operation
        with ir.InsertionPoint(user), user.location:
            if user.name not in _VIEWS:
                _read_rounded(user, use.operand_number, rounded)
                continue
            result = user.results[0]
            view = ir.Operation.create(
                user.name,
                results=[ir.RankedTensorType.get(ir.RankedTensorType(result.type).shape, narrow)],
                operands=[rounded, *list(user.operands)[1:]],
                attributes={name: user.attributes[name] for name in user.attributes},
            )
        _replace(result, view.results[0], narrow)
        user.erase()


def _read_rounded(op: Any, number: int, rounded: Any) -> None:
    """Replace ``op`` by one that reads ``rounded`` as its input ``number`` and rounds it no more."""
    operands = list(op.operands)
    operands[number] = rounded
    count = len(operands) - len(op.results)
    new = dialect("linalg").GenericOp(
        [result.type for result in op.results],
        operands[:count],
        operands[count:],
        op.attributes["indexing_maps"],
        op.attributes["iterator_types"],
    )
    old = op.regions[0].blocks[0]
    block = new.regions[0].blocks.append(*[getattr(value.type, "element_type", value.type) for value in operands])
    mapping = dict(zip(old.arguments, block.arguments, strict=True))
    roundings = _scalar_users(op, number)
    with ir.InsertionPoint(block):
        for inner in old.operations:
            if inner.operation in roundings:
                mapping[inner.operation.results[0]] = block.arguments[number]
                continue
            copy = clone_with(inner.operation, mapping)
            mapping.update(zip(inner.operation.results, copy.results, strict=True))
    for result, replacement in zip(op.results, new.results, strict=True):
        result.replace_all_uses_with(replacement)
    op.erase()
