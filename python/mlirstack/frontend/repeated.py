"""Decomposition of an exported program, each kind of operation once.

A program and a table of decompositions go in, the decomposed program comes out, as ``run_decompositions`` gives it.  Torch
traces a whole graph for that, node by node, twice; a model of twelve equal layers has twelve times the nodes of one layer,
and few kinds more.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._export.utils import _compiling_state_context
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode, dispatch_functionalize
from torch.export import ExportedProgram
from torch.export._trace import _ignore_backend_decomps
from torch.export.exported_program import _split_decomp_table_to_cia_and_python_decomp
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from mlirstack.frontend.composite import CompositeRules
from mlirstack.frontend.decompositions.table import decomposition_table
from mlirstack.frontend.graph import fake_mode, output_node, placeholders
from mlirstack.frontend.quantized import quantized_decompositions

_CHECK = torch.ops.aten._assert_tensor_metadata.default  # of export: true in a program of static types
_OF_STORAGE = torch.ops.aten.as_strided.default  # reads the memory around its operand, which a kind does not know
_OF_VALUES = ("val", "tensor_meta")  # what the metadata of a node says about what it computes


@dataclass(frozen=True, eq=False)
class Rules:
    """A table of decompositions, operator overload → decomposition, made once and used for many programs."""

    table: Mapping[Any, Callable[..., Any]]

    @cached_property
    def parts(self) -> tuple[CompositeRules, dict[Any, Callable[..., Any]]]:
        """The rules of operators that torch itself would decompose, also those that are to stay whole; and all others."""
        composite, others = _split_decomp_table_to_cia_and_python_decomp(dict(self.table))
        return CompositeRules(composite), others


@cache
def rules() -> Rules:
    """Those of every program."""
    return Rules(decomposition_table() | quantized_decompositions())


def decompose(program: ExportedProgram, rules: Rules) -> ExportedProgram:
    """``program`` with every operation decomposed by ``rules``.

    Kinds are told apart where the program is static and functional: no symbolic sizes, no writes, no bodies of control flow.
    ``rules`` must give the same for the same arguments: none that draws random numbers.  ``program`` is not used afterwards.
    """
    kinds = _kinds(program.graph)
    mode = fake_mode(program.graph.nodes) or FakeTensorMode(shape_env=ShapeEnv(), export=True)
    templates = None if kinds is None else _templates(list(dict.fromkeys(kinds.values())), mode, rules)
    if kinds is None or templates is None:
        return program.run_decompositions(dict(rules.table))
    # Nobody calls the graph: its Python code is only made if it is asked for, which takes longer than writing the graph.
    program._graph_module = _LazyGraphModule(program.graph_module, _expanded(program.graph, kinds, templates))
    return program


@dataclass(frozen=True)
class _Tensor:
    """All that a decomposition can ask of a tensor whose numbers it does not know."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    is_conj: bool
    is_neg: bool

    @staticmethod
    def of(value: object) -> _Tensor | None:
        """What ``value`` is, if it is a plain tensor of static shape in the memory of the host."""
        if type(value) is not FakeTensor or value.layout is not torch.strided or value.device.type != "cpu":
            return None
        if not all(type(size) is int for size in (*value.shape, *value.stride())):
            return None
        return _Tensor(tuple(value.shape), value.stride(), value.dtype, value.is_conj(), value.is_neg())

    def example(self) -> torch.Tensor:
        """A tensor like it; of no memory where tensors are fake."""
        made = torch.empty_strided(self.shape, self.stride, dtype=self.dtype)
        return torch._neg_view(made) if self.is_neg else made.conj() if self.is_conj else made


@dataclass(frozen=True)
class _Literal:
    """An argument that is no tensor; numbers that are equal but not the same (1, True, 1.0, -0.0) are told apart."""

    value: object
    text: str


@dataclass(frozen=True)
class _Kind:
    """An operator and what it is called with: the leaves of (arguments, keyword arguments), and their tree."""

    target: Any
    leaves: tuple[_Tensor | _Literal, ...]
    spec: pytree.TreeSpec

    def __hash__(self) -> int:  # a tree has no hash of its own
        return hash((self.target, self.leaves))

    @property
    def tensors(self) -> list[_Tensor]:
        """The tensors among the leaves, in order."""
        return [leaf for leaf in self.leaves if isinstance(leaf, _Tensor)]

    def call(self, given: Iterator[Any]) -> tuple[Any, dict[str, Any]]:
        """Arguments and keyword arguments of the operator on the next tensors of ``given``, or what stands for them."""
        leaves = [next(given) if isinstance(leaf, _Tensor) else leaf.value for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return tuple(args), kwargs


@dataclass(frozen=True)
class _Template:
    """A decomposed kind: its nodes in order, between those that stand for its tensors and those that it leaves; ``spec``
    is the tree of what the operator returns."""

    inputs: Sequence[fx.Node]
    nodes: Sequence[fx.Node]
    outputs: Sequence[fx.Node]
    spec: pytree.TreeSpec


def _kinds(graph: fx.Graph) -> dict[fx.Node, _Kind] | None:
    """The kind of every operation of ``graph``; None where it holds something that cannot be decomposed on its own."""
    kinds: dict[fx.Node, _Kind] = {}
    for node in graph.nodes:
        if node.op in ("placeholder", "output") or node.target in (operator.getitem, _CHECK):
            continue
        kind = _kind(node)
        if kind is None:
            return None
        kinds[node] = kind
    return kinds


def _kind(node: fx.Node) -> _Kind | None:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable or target is _OF_STORAGE:
        return None
    results = pytree.tree_leaves(node.meta.get("val"))
    if not results or any(_Tensor.of(result) is None for result in results):
        return None
    given, spec = pytree.tree_flatten((node.args, node.kwargs))
    leaves: list[_Tensor | _Literal] = []
    for leaf in given:
        tensor = _Tensor.of(leaf.meta.get("val")) if isinstance(leaf, fx.Node) else None
        if isinstance(leaf, fx.Node) and tensor is None:
            return None
        leaves.append(tensor or _Literal(leaf, f"{type(leaf).__name__} {leaf!r}"))
    return _Kind(target, tuple(leaves), spec)


def _templates(kinds: Sequence[_Kind], mode: FakeTensorMode, rules: Rules) -> dict[_Kind, _Template] | None:
    """The decomposition of each kind; None where one needs a constant of its own."""
    traced, specs = _traced(kinds, mode, rules)
    if any(node.op == "get_attr" for node in traced.nodes):
        return None
    given = iter(placeholders(traced))
    inputs = {kind: [next(given) for _ in kind.tensors] for kind in kinds}
    left = iter(output_node(traced).args[0])  # type: ignore[arg-type]
    position = {node: number for number, node in enumerate(traced.nodes)}
    templates: dict[_Kind, _Template] = {}
    for kind, spec in zip(kinds, specs, strict=True):
        outputs = [next(left) for _ in range(spec.num_leaves)]
        nodes = sorted(_between(inputs[kind], outputs), key=position.__getitem__)
        templates[kind] = _Template(inputs[kind], nodes, outputs, spec)
    return templates


def _traced(kinds: Sequence[_Kind], mode: FakeTensorMode, rules: Rules) -> tuple[fx.Graph, list[pytree.TreeSpec]]:
    """A decomposed graph that calls every kind once on tensors of its own, and the tree of what each returns.

    What ``run_decompositions`` does to trace a program, without making a program of the kinds for it.
    """
    composite, others = rules.parts
    specs: list[pytree.TreeSpec] = []

    def call_all(*given: torch.Tensor) -> tuple[Any, ...]:
        operands = iter(given)
        left: list[Any] = []
        for kind in kinds:
            args, kwargs = kind.call(operands)
            leaves, spec = pytree.tree_flatten(kind.target(*args, **kwargs))
            specs.append(spec)
            left += leaves
        return tuple(left)

    functional = dispatch_functionalize(call_all, FunctionalTensorMode(export=True, _allow_token_discovery=True))
    with mode:
        examples = [tensor.example() for kind in kinds for tensor in kind.tensors]
        with (
            composite.in_place(),
            _ignore_backend_decomps(),
            _compiling_state_context(),
            torch.no_grad(),
            enable_python_dispatcher(),
        ):
            return make_fx(functional, decomposition_table=others)(*examples).graph, specs


def _between(inputs: Sequence[fx.Node], outputs: Sequence[fx.Node]) -> set[fx.Node]:
    """The nodes that ``outputs`` are computed by from ``inputs``."""
    found: set[fx.Node] = set()
    pending = list(outputs)
    while pending:
        node = pending.pop()
        if node not in found and node not in inputs:
            found.add(node)
            pending += node.all_input_nodes
    return found


def _expanded(graph: fx.Graph, kinds: Mapping[fx.Node, _Kind], templates: Mapping[_Kind, _Template]) -> fx.Graph:
    """``graph`` with a copy of its template for every operation; new nodes know the line of the operation."""
    result = fx.Graph()
    values: dict[fx.Node, Any] = {}  # of ``graph`` → node of the result, or a tree of them
    for node in graph.nodes:
        if node in kinds:
            values[node] = _copied(result, node, templates[kinds[node]], values)
        elif node.target is operator.getitem:
            values[node] = values[node.args[0]][node.args[1]]
        elif node.target is not _CHECK:
            values[node] = result.node_copy(node, values.__getitem__)
            values[node].name = node.name  # also where it is a word of Python's, such as "input"
    return result


def _copied(result: fx.Graph, node: fx.Node, template: _Template, values: Mapping[fx.Node, Any]) -> Any:
    given = [leaf for leaf in pytree.tree_leaves((node.args, node.kwargs)) if isinstance(leaf, fx.Node)]
    inside = dict(zip(template.inputs, (values[leaf] for leaf in given), strict=True))
    origin = {key: value for key, value in node.meta.items() if key not in _OF_VALUES}
    for own in template.nodes:
        args, kwargs = fx.map_arg((own.args, own.kwargs), inside.__getitem__)
        name = own.target.overloadpacket.__name__ if isinstance(own.target, torch._ops.OpOverload) else None
        inside[own] = result.create_node(own.op, own.target, args, kwargs, name)
        inside[own].meta = {key: own.meta[key] for key in _OF_VALUES if key in own.meta} | origin
    return pytree.tree_unflatten([inside[output] for output in template.outputs], template.spec)
