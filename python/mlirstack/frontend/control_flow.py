"""Control flow of torch's kind in the torch dialect: ``cond``, ``while_loop``, ``scan``, ``map`` as branches and loops.

Bodies are functions by the time these ops are imported; what is built here calls them, and the inliner puts them in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from mlirstack.bindings import fx_node_importer, ir
from mlirstack.frontend.graph import output_node

_NO_LIMIT = torch.iinfo(torch.int64).max


def control_flow_importer() -> Any:
    """torch-mlir's importer of nodes, extended by the higher-order ops that it does not have or has in part."""

    class ControlFlowImporter(fx_node_importer()):  # type: ignore[misc]
        def _import_hop_cond(self, loc: Any, node: fx.Node, hop: object) -> None:
            predicate, chosen, other, operands = node.args
            branch = _Builder(self, node, loc)
            types = branch.result_types()
            values = branch.operands(operands)
            op = branch.create("torch.prim.If", types, [branch.boolean(self._import_argument(loc, predicate))], regions=2)
            for region, body in zip(op.regions, (chosen, other), strict=True):
                with ir.InsertionPoint(ir.Block.create_at_start(region, [])):
                    branch.create("torch.prim.If.yield", [], branch.call(body, types, values))
            branch.bind(op.results)

        def _import_hop_while_loop(self, loc: Any, node: fx.Node, hop: object) -> None:
            condition, body, carried, read = node.args
            loop = _Builder(self, node, loc)
            types = loop.result_types()
            start, constant = loop.operands(carried), loop.operands(read)
            flag = [loop.flag_type(condition)]
            first = loop.unfolded(loop.call(condition, flag, [*start, *constant])[0])
            op = loop.create("torch.prim.Loop", types, [loop.integer(_NO_LIMIT), first, *start], regions=1)
            block = ir.Block.create_at_start(op.regions[0], [loop.integer_type, *types], [loc] * (len(types) + 1))
            with ir.InsertionPoint(block):
                values = loop.call(body, types, [*list(block.arguments)[1:], *constant])
                again = loop.boolean(loop.call(condition, flag, [*values, *constant])[0])
                loop.create("torch.prim.Loop.condition", [], [again, *values])
            loop.bind(op.results)

        def _import_hop_scan(self, loc: Any, node: fx.Node, hop: object) -> None:
            body, carried, stepped, read = node.args
            _steps(_Builder(self, node, loc), body, carried, stepped, read)

        def _import_hop_map_impl(self, loc: Any, node: fx.Node, hop: object) -> None:
            body, stepped, read = node.args
            _steps(_Builder(self, node, loc), body, (), stepped, read)

    return ControlFlowImporter


def _steps(loop: _Builder, body: Any, carried: Any, stepped: Any, read: Any) -> None:
    """A loop over the first dimension of ``stepped``: state is handed on, results are written into rows of new tensors."""
    types = loop.result_types()
    start, rows, constant = loop.operands(carried), loop.operands(stepped), loop.operands(read)
    results = loop.results_meta()
    count = results[len(start)].shape[0] if len(results) > len(start) else stepped[0].meta["val"].shape[0]
    if not isinstance(count, int):
        raise NotImplementedError("a scan or map over a dynamic number of steps")
    operands = zip((*carried, *stepped, *read), (*start, *rows, *constant), strict=True)
    given = [(node, value) for node, value in operands if isinstance(node, fx.Node)]
    empty = [loop.zeros(kind, value, given) for kind, value in zip(types[len(start) :], results[len(start) :], strict=True)]
    yes, zero = loop.constant("torch.constant.bool", loop.bool_type, ir.BoolAttr.get(True)), loop.integer(0)
    op = loop.create("torch.prim.Loop", types, [loop.integer(count), yes, *start, *empty], regions=1)
    block = ir.Block.create_at_start(op.regions[0], [loop.integer_type, *types], [loop.loc] * (len(types) + 1))
    with ir.InsertionPoint(block):
        step, *state = list(block.arguments)
        slices = []
        for row, node in zip(rows, stepped, strict=True):
            value = node.meta["val"]
            kind = loop.tensor_type(value.shape[1:], value.dtype)
            slices.append(loop.create("torch.aten.select.int", [kind], [row, zero, step]).result)
        inner = [*types[: len(start)], *(loop.tensor_type(v.shape[1:], v.dtype) for v in results[len(start) :])]
        values = loop.call(body, inner, [*state[: len(start)], *slices, *constant])
        written = [
            loop.create("torch.aten.select_scatter", [kind], [old, new, zero, step]).result
            for kind, old, new in zip(types[len(start) :], state[len(start) :], values[len(start) :], strict=True)
        ]
        loop.create("torch.prim.Loop.condition", [], [yes, *values[: len(start)], *written])
    loop.bind(op.results)


class _Builder:
    """Builds the ops of one node at the importer's insertion point."""

    def __init__(self, importer: Any, node: fx.Node, loc: Any) -> None:
        self.importer, self.node, self.loc = importer, node, loc
        self.types = importer._cc
        self.integer_type, self.bool_type = self.types.torch_int_type, self.types.torch_bool_type

    def create(self, name: str, results: Sequence[Any], operands: Sequence[Any], regions: int = 0) -> Any:
        return ir.Operation.create(
            name, results=list(results), operands=list(operands), regions=regions, loc=self.loc
        )  # fmt: skip

    def constant(self, name: str, kind: Any, value: Any) -> Any:
        return ir.Operation.create(name, results=[kind], attributes={"value": value}, loc=self.loc).result

    def integer(self, value: int) -> Any:
        return self.constant("torch.constant.int", self.integer_type, self.types.integer_attr(value, 64))

    def tensor_type(self, shape: Sequence[Any], dtype: torch.dtype) -> Any:
        return self.types.get_vtensor_type(torch.Size(shape), dtype)

    def zeros(self, kind: Any, value: torch.Tensor, operands: Sequence[tuple[Any, Any]]) -> Any:
        """A new tensor like ``value``; sizes that vary are those of one of ``operands``, pairs of a node and its value."""
        context = self.importer._c
        sizes = self.create(
            "torch.prim.ListConstruct",
            [ir.Type.parse("!torch.list<int>", context)],
            [self.integer(size) if isinstance(size, int) else self.size(size, operands) for size in value.shape],
        ).result
        none = self.create("torch.constant.none", [ir.Type.parse("!torch.none", context)], []).result
        dtype = self.importer._import_argument(self.loc, value.dtype)
        return self.create("torch.aten.zeros", [kind], [sizes, dtype, none, none, none]).result

    def size(self, size: torch.SymInt, operands: Sequence[tuple[Any, Any]]) -> Any:
        """A size that varies, from an operand that has it."""
        for node, value in operands:
            shape = node.meta["val"].shape if isinstance(node.meta["val"], torch.Tensor) else ()
            for axis, found in enumerate(shape):
                if isinstance(found, torch.SymInt) and found.node.expr == size.node.expr:
                    return self.create("torch.aten.size.int", [self.integer_type], [value, self.integer(axis)]).result
        raise NotImplementedError("a scan or map with results of a dynamic size that none of its operands has")

    def boolean(self, value: Any) -> Any:
        if value.type == self.bool_type:
            return value
        return self.create("torch.aten.Bool.Tensor", [self.bool_type], [value]).result

    def flag_type(self, condition: Any) -> Any:
        """What the graph of ``condition`` gives: a truth value computed from tensors, or from numbers."""
        (flag,) = pytree.tree_leaves(output_node(self.graph_module(condition).graph).args)
        is_tensor = isinstance(flag, fx.Node) and isinstance(flag.meta["val"], torch.Tensor)
        return self.tensor_type((), torch.bool) if is_tensor else self.bool_type

    def unfolded(self, flag: Any) -> Any:
        """``flag`` as a truth value, by ops that nothing folds.

        torch-mlir takes a loop whose first condition is the constant "true" for one that counts to its limit, whatever the
        later conditions are (``PrimLoopOp::isForLike``, torch-mlir 20261001): it would never end.
        """
        if flag.type == self.bool_type:
            number = self.create("torch.aten.Int.bool", [self.integer_type], [flag]).result
            flag = self.create("torch.prim.NumToTensor.Scalar", [self.tensor_type((), torch.int64)], [number]).result
        truth = self.tensor_type((), torch.bool)
        return self.boolean(self.create("torch.aten.logical_or", [truth], [flag, flag]).result)

    def operands(self, values: Any) -> list[Any]:
        return [self.importer._import_argument(self.loc, value) for value in values]

    def results_meta(self) -> list[torch.Tensor]:
        value = self.node.meta["val"]
        return list(value) if isinstance(value, (list, tuple)) else [value]

    def result_types(self) -> list[Any]:
        return [self.types.value_info_to_type(value) for value in self.results_meta()]

    def call(self, body: Any, types: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
        """The results of the function that holds graph ``body``."""
        name = self.importer.fx_importer._graph_module_to_func_name[id(self.graph_module(body))]
        attributes = {"callee": ir.FlatSymbolRefAttr.get(name, self.importer._c)}
        op = ir.Operation.create(
            "func.call", results=list(types), operands=list(operands), attributes=attributes, loc=self.loc
        )
        return list(op.results)

    def graph_module(self, body: Any) -> fx.GraphModule:
        module = getattr(self.node.graph.owning_module, body.target)
        assert isinstance(module, fx.GraphModule)
        return module

    def bind(self, results: Any) -> None:
        self.importer._multi_result_nodes.add(self.node)
        for index, value in enumerate(results):
            self.importer.bind_node_value(self.node, value, index)
