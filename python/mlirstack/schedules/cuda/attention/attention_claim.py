"""Attention taken out of a function before other kernels are formed: each as a group of ops that nothing else needs.

Takes the ops of ``@main`` as linalg on tensors.  What an attention shares with others (masks, views, casts) is copied, so
that nothing else leaves the group than its results; what is computed inside of Q Kᵀ is computed before it; a constant 0, 1,
2, … becomes the loop index.  Values stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.passes import functions
from mlirstack.passes.abi import PREPARE, PREPARED
from mlirstack.passes.regions import clone_with, external_values, is_constant
from mlirstack.schedules.cuda.attention.attention_description import Attention
from mlirstack.schedules.cuda.attention.attention_expression import Expressions, Position, is_elementwise, is_iota, leaves
from mlirstack.schedules.cuda.attention.attention_match import find
from mlirstack.schedules.cuda.attention.attention_scores import scores_of
from mlirstack.schedules.cuda.graph import KernelGraph, Node, Tensor

_PEELED = ("arith.extf", "arith.mulf")  # stay in the product: they change no place, and cost nothing there


def claim(operations: Sequence[Any], takes: Callable[[Attention], bool] = lambda attention: True) -> list[list[Any]]:
    """Groups of ops, one per attention that ``takes`` accepts, in program order; each can run as a whole.

    ``operations`` are those of one block.  The groups' ops are new ones in that block; ops that nothing uses any more are
    erased.
    """
    if not operations:
        return []
    block = operations[0].operation.block
    while _prepare(block):
        pass
    found, _ = find(_graph(block))
    return [_own_copy(attention) for attention in found if takes(attention)]


def _graph(block: Any) -> KernelGraph:
    return KernelGraph([op.operation for op in block.operations])


def _prepare(block: Any) -> bool:
    """Rewrites that make attentions easier to take; False when there are none left."""
    found, refused = find(_graph(block))
    products = dict.fromkeys(refusal.product for refusal in refused if refusal.product is not None)
    operands = dict.fromkeys(e.tensor for attention in found for e in (attention.query, attention.key, attention.value))
    changed = [_separate_factor(product) for product in products] + [_narrow(tensor) for tensor in operands]
    if not any(changed):
        changed = [_recompute(attention, mask.tensor) for attention in found for mask in scores_of(attention).masks]
    return any(changed)


# ------------------------------------------------------------------------------------------------------- copy of a group


def _own_copy(attention: Attention) -> list[Any]:
    """Copies of the ops of an attention, each where it stands; they take over the uses of what leaves it."""
    leaving = {element.tensor.producer for element in attention.results}
    mapping: dict[Any, Any] = {}
    copies = []
    for node in attention.nodes:
        if node.name == "arith.constant":
            continue
        with ir.InsertionPoint(node.op), node.op.location:
            copy = _with_index(node, mapping) if _reads_iota(node) else clone_with(node.op, mapping)
        mapping.update(zip(node.op.results, copy.results, strict=True))
        copies.append(copy.operation)
        if node in leaving:
            for old, new in zip(node.op.results, copy.results, strict=True):
                old.replace_all_uses_with(new)
    for node in reversed(attention.nodes):
        if not any(True for result in node.op.results for _ in result.uses):
            node.op.erase()
    return copies


def _reads_iota(node: Node) -> bool:
    return is_elementwise(node) and any(is_iota(operand.tensor) for operand in node.inputs if operand.tensor is not None)


def _with_index(node: Node, mapping: dict[Any, Any]) -> Any:
    """A copy of an elementwise op that counts loops instead of reading a constant 0, 1, 2, …"""
    kept = [i for i, operand in enumerate(node.inputs) if operand.tensor is None or not is_iota(operand.tensor)]
    outputs = [mapping.get(value, value) for value in list(node.op.operands)[len(node.inputs) :]]
    inputs = [mapping.get(node.inputs[i].value, node.inputs[i].value) for i in kept]
    maps = [node.inputs[i].map for i in kept] + [operand.map for operand in node.outputs]
    op = _generic(inputs, outputs, maps, node.iterators)
    arguments = [op.regions[0].blocks[0].arguments[i] for i in range(len(maps))]
    with ir.InsertionPoint(op.regions[0].blocks[0]):
        values = mapping | dict(zip((node.body.arguments[i] for i in kept), arguments, strict=False))
        values |= dict(zip(list(node.body.arguments)[len(node.inputs) :], arguments[len(kept) :], strict=True))
        for i, operand in enumerate(node.inputs):
            if i not in kept:
                argument = node.body.arguments[i]
                index = dialect("linalg").IndexOp(operand.dims[0]).result
                values[argument] = dialect("arith").IndexCastOp(argument.type, index).result
        _copy_body([inner.operation for inner in node.body.operations], values)
    return op


# ------------------------------------------------------------------------------------------------------------ operands


def _separate_factor(product: Node) -> bool:
    """Compute a factor of a product (a rotated Q, for instance) before it, into a tensor; False if all factors are plain."""
    arguments = list(product.body.arguments)
    for core in _cores(product):
        inner = _needed(core, product)
        if inner and None not in product.sizes:
            used = [i for i, argument in enumerate(arguments) if any(argument in op.operands for op in inner)]
            if len(product.inputs) not in used:
                _compute_before(product, core, inner, used)
                return True
    return False


def _cores(product: Node) -> list[Any]:
    """The two factors in the body, without conversions and constant factors around them."""
    out = product.body.arguments[len(product.inputs)]
    total = functions.defining_op(functions.yield_op(product.body).operands[0])
    if total is None or total.name != "arith.addf" or out not in total.operands:
        return []
    pending, cores = [value for value in total.operands if value != out], []
    while pending:
        value = pending.pop()
        op = functions.defining_op(value)
        if op is not None and op.name in _PEELED:
            pending += op.operands
        elif op is None or op.name != "arith.constant":
            cores.append(value)
    return cores if len(cores) == 2 else []


def _needed(value: Any, product: Node) -> list[Any]:
    """The ops of the body that compute ``value``, in order."""
    needed = {value}
    ops: list[Any] = []
    for op in reversed(list(product.body.operations)[:-1]):
        if op.operation.results[0] in needed:
            ops.insert(0, op.operation)
            needed.update(external_values(op.operation))
    return ops


def _compute_before(product: Node, core: Any, inner: list[Any], used: list[int]) -> None:
    """Write ``core`` into a tensor over the loops that it depends on (the summed one last), and read it in the product."""
    read = {loop for i in used for loop in product.inputs[i].dims if loop is not None}
    loops = [loop for loop in sorted(read) if loop not in product.reductions] + [r for r in product.reductions if r in read]
    renamed = {loop: place for place, loop in enumerate(loops)}
    operands = list(product.op.operands)
    with ir.InsertionPoint(product.op), product.op.location:
        empty = dialect("tensor").EmptyOp([product.sizes[loop] for loop in loops], core.type).result
        maps = [_dims(len(loops), [renamed[d] for d in _all(product.inputs[i].dims)]) for i in used]
        maps.append(_dims(len(loops), range(len(loops))))
        before = _generic([operands[i] for i in used], [empty], maps, ["parallel"] * len(loops))
        with ir.InsertionPoint(before.regions[0].blocks[0]):
            inside = before.regions[0].blocks[0].arguments
            values = dict(zip((product.body.arguments[i] for i in used), inside, strict=False))
            _copy_body(inner, values)
            dialect("linalg").YieldOp([values[core]])
        rest = [i for i in range(len(product.inputs)) if i not in used]
        maps = [_dims(len(product.sizes), loops), *(product.inputs[i].map for i in rest), product.outputs[0].map]
        inputs = [before.results[0], *(operands[i] for i in rest)]
        after = _generic(inputs, operands[len(product.inputs) :], maps, product.iterators)
        with ir.InsertionPoint(after.regions[0].blocks[0]):
            old = [core, *(product.body.arguments[i] for i in rest), product.body.arguments[len(product.inputs)]]
            values = dict(zip(old, after.regions[0].blocks[0].arguments, strict=True))
            kept = [op.operation for op in product.body.operations if op.operation not in inner]
            _copy_body(kept, values)
    product.op.results[0].replace_all_uses_with(after.results[0])
    product.op.erase()


def _narrow(tensor: Tensor) -> bool:
    """Store a tensor that was widened when it was stored as what it was before: float32 of bfloat16 numbers as bfloat16."""
    node = tensor.producer
    if node is None or not is_elementwise(node) or len(node.outputs) != 1 or len(node.body_ops()) == 1:
        return False
    leave = functions.yield_op(node.body)
    widened = functions.defining_op(leave.operands[0])
    if widened is None or widened.name != "arith.extf":
        return False
    operands, result = list(node.op.operands), node.op.results[0]
    count, rank = len(node.inputs), len(tensor.shape)
    with ir.InsertionPoint(node.op), node.op.location:
        empty = dialect("tensor").EmptyOp(list(tensor.shape), widened.operands[0].type).result
        maps = [operand.map for operand in (*node.inputs, *node.outputs)]
        narrow = _generic(operands[:count], [empty], maps, node.iterators)
        with ir.InsertionPoint(narrow.regions[0].blocks[0]):
            values = dict(zip(list(node.body.arguments)[:count], narrow.regions[0].blocks[0].arguments, strict=False))
            _copy_body([op.operation for op in node.body.operations if op.operation not in (leave, widened)], values)
            dialect("linalg").YieldOp([values.get(widened.operands[0], widened.operands[0])])
        same = _dims(rank, range(rank))
        wide = _generic([narrow.results[0]], operands[count:], [same, same], ["parallel"] * rank)
        with ir.InsertionPoint(wide.regions[0].blocks[0]):
            number = dialect("arith").ExtFOp(tensor.element, wide.regions[0].blocks[0].arguments[0]).result
            dialect("linalg").YieldOp([number])
    result.replace_all_uses_with(wide.results[0])
    node.op.erase()
    return True


# ----------------------------------------------------------------------------------------------------------------- masks


def _recompute(attention: Attention, mask: Tensor) -> bool:
    """Compute a mask that ``@prepare`` makes of loop indices alone (a triangle) inside of the attention instead."""
    nodes = _prepared_nodes(mask.value)
    if not nodes:
        return False
    values: dict[Any, Any] = {}
    with ir.InsertionPoint(attention.nodes[0].op):
        for node in nodes:
            with node.op.location:
                kind = ir.RankedTensorType(node.op.results[0].type)
                values[node.op.operands[len(node.inputs)]] = dialect("tensor").EmptyOp(kind.shape, kind.element_type).result
                values |= _own_constants(node.op)
                values[node.op.results[0]] = _with_index(node, values).results[0]
    for node in attention.nodes:
        for i, operand in enumerate(node.op.operands):
            if operand == mask.value:
                node.op.operands[i] = values[nodes[-1].op.results[0]]
    return True


def _own_constants(op: Any) -> dict[Any, Any]:
    """Copies, at the insertion point, of the scalar constants that the body of ``op`` reads from outside."""
    producers = [functions.defining_op(value) for value in external_values(op)]
    scalars = [p for p in producers if p is not None and is_constant(p) and not isinstance(p.results[0].type, ir.ShapedType)]
    return {producer.results[0]: producer.clone().operation.results[0] for producer in scalars}


def _prepared_nodes(value: Any) -> list[Node]:
    """The elementwise nodes of ``@prepare`` that compute this argument of ``@main``, if they read nothing but indices."""
    if not isinstance(value.owner, ir.Block):
        return []
    entry = value.owner.owner
    number = functions.argument_attributes(entry)[value.arg_number].get(PREPARED)
    symbols = ir.SymbolTable(entry.parent)
    if number is None or PREPARE not in symbols:
        return []
    prepare = symbols[PREPARE]
    graph = _graph(prepare.regions[0].blocks[0])
    result = functions.return_op(prepare).operands[functions.integer(number)]
    source = next((node for node in graph.nodes if node.op.results and node.op.results[0] == result), None)
    tensor = source.outputs[0].tensor if source is not None and source.outputs else None
    way = Expressions()
    if tensor is None or any(not isinstance(leaf, Position) for leaf in leaves(way.of(tensor))):
        return []
    nodes = [node for node in graph.nodes if node in way.visited and node.name != "arith.constant"]
    simple = all(is_elementwise(node) and len(node.outputs) == 1 for node in nodes)
    return nodes if simple else []


# -------------------------------------------------------------------------------------------------------------- building


def _generic(inputs: Sequence[Any], outputs: Sequence[Any], maps: Sequence[Any], iterators: Sequence[str]) -> Any:
    """A linalg.generic with an empty body of the right arguments."""
    kinds = [ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in iterators]
    attributes = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps])
    results = [value.type for value in outputs]
    op = dialect("linalg").GenericOp(results, list(inputs), list(outputs), attributes, ir.ArrayAttr.get(kinds))
    types = [getattr(value.type, "element_type", value.type) for value in (*inputs, *outputs)]
    op.regions[0].blocks.append(*types, arg_locs=[op.location] * len(types))
    return op


def _copy_body(ops: Sequence[Any], values: dict[Any, Any]) -> None:
    """Copy scalar ops to the insertion point; ``values`` maps their operands, and gains their results."""
    for op in ops:
        copy = clone_with(op, values)
        values.update(zip(op.results, copy.results, strict=True))


def _dims(loops: int, chosen: Sequence[int]) -> Any:
    return ir.AffineMap.get(loops, 0, [ir.AffineExpr.get_dim(loop) for loop in chosen])


def _all(dims: Sequence[int | None]) -> list[int]:
    assert None not in dims
    return [loop for loop in dims if loop is not None]
