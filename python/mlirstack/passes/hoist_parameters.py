"""What depends on parameters alone is computed once, at load, not in every call.

Weight transposes, casts, batch-norm scales, tables made of constants: all of it moves out of ``@main`` into ``@prepare``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import PassManager, dialect, ir
from mlirstack.ir.ops import function, walk
from mlirstack.ir.parameters import PARAMETER
from mlirstack.passes import abi, functions
from mlirstack.passes.regions import clone_with, external_values, is_constant, static_elements
from mlirstack.pipeline.step import PythonPass

# Ops that only rename or allocate: not worth a buffer of their own.
_FREE = frozenset(
    {"tensor.empty", "tensor.expand_shape", "tensor.collapse_shape", "tensor.cast", "tensor.extract_slice", "linalg.fill"}
)
_PURE_DIALECTS = ("arith", "math", "tensor", "linalg", "complex", "index")
# A broadcast of a parameter is cheaper to read small than large.
_GROWTH = 2
_TABLE_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class HoistParameters(PythonPass):
    """Before: ``@main`` takes parameters (arguments marked ``mlirstack.parameter``) and computes with them.  After: what
    depends only on parameters and constants stands in ``@prepare``, which takes parameters and returns the prepared values;
    ``@main`` takes these as arguments marked ``mlirstack.prepared``, and no parameter that it no longer uses.

    May run again, after another pass has found more to prepare: what it adds is appended.  There is no ``@prepare`` where
    there is nothing to do in it.

    ``keep_narrow``: a parameter of 16 bits that elementwise ops read as f32 stays as it is.  Where reading takes longer than
    converting, half the bytes are half the time.
    """

    name = "mlirstack-hoist-parameters"
    keep_narrow: bool = False

    def apply(self, module: Any) -> None:
        main = function(module, abi.MAIN)
        if len(main.regions[0].blocks) != 1:
            return
        fixed = fixed_values(main)
        worth = {value for value in fixed if _is_worth_it(value) and not (self.keep_narrow and _is_narrow(value))}
        wanted = [value for value in fixed if value in worth and _is_used_by_others(value, worth)]
        if wanted:
            _Preparation(module, main).hoist(wanted)
            _erase_dead(main)
        _drop_unused_arguments(main)
        _drop_unused_results(module, main)


@dataclass(frozen=True)
class FusePrepared(PythonPass):
    """Before: ``@prepare`` transposes a weight, then copies it into panels.  After: elementwise ops there are fused, so that
    a weight is read once and stands in memory once; ``@main`` is not touched."""

    name = "mlirstack-fuse-prepared"

    def apply(self, module: Any) -> None:
        for entry in functions.entry_points(module):
            if functions.name_of(entry) == abi.PREPARE:
                PassManager.parse("func.func(linalg-fuse-elementwise-ops)").run(entry.operation)


def fixed_values(main: Any) -> dict[Any, None]:
    """Values that are the same in every call: parameters, prepared values, constants, and what is computed from them."""
    fixed: dict[Any, None] = {}
    block = main.regions[0].blocks[0]
    for argument, attributes in zip(block.arguments, functions.argument_attributes(main), strict=True):
        if PARAMETER in attributes or abi.PREPARED in attributes:
            fixed[argument] = None
    for op in block.operations:
        operation = op.operation
        if _is_pure(operation) and len(operation.results) and all(value in fixed for value in external_values(operation)):
            fixed.update(dict.fromkeys(operation.results))
    return fixed


def _is_pure(operation: Any) -> bool:
    """Is it free of side effects, run-time checks in its regions included?"""
    return all(op.name.split(".", 1)[0] in _PURE_DIALECTS for op in (operation, *walk(operation)))


def _is_worth_it(value: Any) -> bool:
    """Is it a computed tensor, not much larger than what it is computed from?"""
    operation, elements = functions.defining_op(value), static_elements(value)
    if operation is None or elements is None or operation.name in _FREE or _is_uniform(value):
        return False
    sources = [static_elements(v) or 0 for v in external_values(operation) if not _is_empty(v)]
    # Without any tensor to read it is a table (positions, a causal mask): computed from loop indices alone.
    return elements <= (_GROWTH * sum(sources) if any(sources) else _TABLE_ELEMENTS)


def _is_uniform(value: Any) -> bool:
    """Is it a constant, or computed from one number at every place alike?  Fusion makes a scalar of it: nothing is read."""
    operation = functions.defining_op(value)
    if operation is None or is_constant(operation):
        return operation is not None
    if operation.name in ("linalg.fill", "tensor.empty"):
        return True
    reads_place = any(op.name in ("linalg.index", "tensor.extract") for op in walk(operation))
    return operation.name == "linalg.generic" and not reads_place and all(map(_is_uniform, _tensors_read(operation)))


def _tensors_read(operation: Any) -> list[Any]:
    return [v for v in external_values(operation) if isinstance(v.type, ir.ShapedType)]


def _is_empty(value: Any) -> bool:
    operation = functions.defining_op(value)
    return operation is not None and operation.name == "tensor.empty"


def _is_narrow(value: Any) -> bool:
    """Is it a tensor of 16-bit floats, only made wider for elementwise ops?"""
    operation = functions.defining_op(value)
    if operation is None or operation.name != "linalg.generic" or len(operation.operands) != 2:
        return False
    body = [op.operation.name for op in operation.regions[0].blocks[0].operations]
    return body == ["arith.extf", "linalg.yield"] and _is_read_elementwise(value, operation.block)


def _is_read_elementwise(value: Any, block: Any) -> bool:
    """Is it read, views of it aside, by ops without reductions alone?"""
    for use in value.uses:
        user = _enclosing(use.owner.operation, block)
        if user.name in _FREE:
            if not all(_is_read_elementwise(result, block) for result in user.results):
                return False
        elif user.name != "linalg.generic" or "reduction" in str(user.attributes["iterator_types"]):
            return False
    return True


def _is_used_by_others(value: Any, worth: Collection[Any]) -> bool:
    """Does anything that is not hoisted itself use it?  ``worth``: the values that may be."""
    operation = functions.defining_op(value)
    assert operation is not None
    for use in value.uses:
        owner = _enclosing(use.owner.operation, operation.block)
        if not all(r in worth for r in owner.results) or not len(owner.results):
            return True
    return False


def _enclosing(operation: Any, block: Any) -> Any:
    """The op of ``block`` that ``operation`` is nested in, or itself."""
    while operation.block != block:
        operation = operation.parent.operation
    return operation


class _Preparation:
    """``@prepare`` being written."""

    def __init__(self, module: Any, main: Any) -> None:
        self.main = main
        self.block = main.regions[0].blocks[0]
        self.attributes = functions.argument_attributes(main)
        try:
            self.prepare = function(module, abi.PREPARE)
        except KeyError:
            with ir.InsertionPoint.at_block_begin(module.body), main.location:
                self.prepare = dialect("func").FuncOp(abi.PREPARE, ([], []))
                with ir.InsertionPoint(self.prepare.add_entry_block()):
                    dialect("func").ReturnOp([])
        self.given = functions.argument_attributes(self.prepare)
        self.leave = functions.return_op(self.prepare)
        self.results = list(self.leave.operands)
        self.copies: dict[Any, Any] = {}
        for argument, given in zip(self.block.arguments, self.attributes, strict=True):
            if abi.PREPARED in given:
                self.copies[argument] = self.results[functions.integer(given[abi.PREPARED])]

    def hoist(self, wanted: list[Any]) -> None:
        """Move ``wanted`` into ``@prepare``, and make them arguments of ``@main``."""
        copies = [self._copy(value) for value in wanted]
        for value, copy in zip(wanted, copies, strict=True):
            self.results.append(copy)
            argument = self.block.add_argument(value.type, self.main.location)
            self.attributes.append({abi.PREPARED: functions.index_attribute(len(self.results) - 1)})
            value.replace_all_uses_with(argument)
        with ir.InsertionPoint(self.leave), self.leave.location:
            dialect("func").ReturnOp(self.results)
        self.leave.operation.erase()
        inputs = [a.type for a in self.prepare.regions[0].blocks[0].arguments]
        functions.set_type(self.prepare, inputs, [r.type for r in self.results])
        functions.set_argument_attributes(self.prepare, self.given)
        signature = functions.type_of(self.main)
        functions.set_type(self.main, [a.type for a in self.block.arguments], signature.results)
        functions.set_argument_attributes(self.main, self.attributes)

    def _copy(self, value: Any) -> Any:
        """``value`` as computed inside ``@prepare``."""
        if value in self.copies:
            return self.copies[value]
        operation = functions.defining_op(value)
        if operation is None:
            self.copies[value] = self._parameter(value)
            return self.copies[value]
        mapping = {v: self._copy(v) for v in external_values(operation)}
        with ir.InsertionPoint(self.leave), operation.location:
            copy = clone_with(operation, mapping)
        self.copies.update(zip(operation.results, copy.results, strict=True))
        return self.copies[value]

    def _parameter(self, argument: Any) -> Any:
        """An argument of ``@prepare`` for a parameter of ``@main``."""
        given = self.attributes[argument.arg_number]
        for position, attributes in enumerate(self.given):
            if attributes[abi.ARGUMENT] == given[abi.ARGUMENT]:
                return self.prepare.regions[0].blocks[0].arguments[position]
        self.given.append(dict(given))
        return self.prepare.regions[0].blocks[0].add_argument(argument.type, self.main.location)


def _erase_dead(main: Any) -> None:
    for op in reversed(list(main.regions[0].blocks[0].operations)[:-1]):
        operation = op.operation
        if _is_pure(operation) and not any(True for result in operation.results for _ in result.uses):
            operation.erase()


def _drop_unused_arguments(main: Any) -> None:
    """Parameters and prepared values that nothing uses any more."""
    block, attributes = main.regions[0].blocks[0], functions.argument_attributes(main)
    for position in reversed(range(len(attributes))):
        is_fixed = PARAMETER in attributes[position] or abi.PREPARED in attributes[position]
        if is_fixed and not any(True for _ in block.arguments[position].uses):
            block.erase_argument(position)
            del attributes[position]
    functions.set_type(main, [a.type for a in block.arguments], functions.type_of(main).results)
    functions.set_argument_attributes(main, attributes)


def _drop_unused_results(module: Any, main: Any) -> None:
    """Results of @prepare that @main no longer takes, and what only they needed; @prepare itself if none is left."""
    try:
        prepare = function(module, abi.PREPARE)
    except KeyError:
        return
    attributes = functions.argument_attributes(main)
    used = sorted({functions.integer(given[abi.PREPARED]) for given in attributes if abi.PREPARED in given})
    for given in attributes:
        if abi.PREPARED in given:
            given[abi.PREPARED] = functions.index_attribute(used.index(functions.integer(given[abi.PREPARED])))
    functions.set_argument_attributes(main, attributes)
    if not used:
        prepare.operation.erase()
        return
    leave = functions.return_op(prepare)
    results = [leave.operands[i] for i in used]
    with ir.InsertionPoint(leave), leave.location:
        dialect("func").ReturnOp(results)
    leave.operation.erase()
    functions.set_type(prepare, functions.type_of(prepare).inputs, [r.type for r in results])
    _erase_dead(prepare)
    _drop_unused_arguments(prepare)
