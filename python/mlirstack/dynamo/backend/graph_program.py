"""A graph of AOTAutograd as a :class:`Program`, and how a call of the graph maps to a call of the program.

The program has only what is computed: inputs that nothing reads, numbers that are known from the shapes, and outputs that
are views of inputs or of other results (half of what a forward graph saves for its backward graph) stay outside.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from mlirstack.errors import UnsupportedError, UnsupportedOp
from mlirstack.frontend.dynamic import DimensionNames
from mlirstack.frontend.dynamic_views import rewrite_dynamic_views
from mlirstack.frontend.graph import FxGraph, dtype_name, node_source, output_node, placeholders, target_name
from mlirstack.frontend.program import ArgumentSpec, OutputSpec, Program, ResultSpec, Signature
from mlirstack.frontend.randomness import random_ops
from mlirstack.frontend.scalars import rewrite_scalar_calls

aten = torch.ops.aten

_LARGEST_CONSTANT = 1  # elements; larger tensors that the graph holds become arguments

_VIEWS = (
    aten.alias,
    aten.detach,
    aten.expand,
    aten.permute,
    aten.select,
    aten.slice,
    aten.squeeze,
    aten.t,
    aten.transpose,
    aten.unsqueeze,
    aten.view,
    aten._unsafe_view,
)


@dataclass(frozen=True)
class SymbolSource:
    """Where the value of a symbol of the shapes is found: in input ``position``, a number or a tensor's ``axis``."""

    symbol: Any  # sympy.Symbol
    position: int
    axis: int | None


@dataclass(frozen=True)
class ViewStep:
    """One view operation of an output: ``target(value, *arguments, **keywords)``."""

    target: Any  # torch._ops.OpOverload
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]


@dataclass(frozen=True)
class GraphOutput:
    """One output of the graph: a result of the program, an input, or a number; seen through ``views``.

    Exactly one of ``result``, ``input`` and ``value`` says where it comes from, ``value`` where both others are None: a
    constant, or the sympy expression of a size.
    """

    result: int | None = None
    input: int | None = None
    value: Any = None
    views: tuple[ViewStep, ...] = ()


@dataclass(frozen=True)
class GraphProgram:
    """A program and how the graph's own call maps to it.

    ``inputs`` are the positions of the graph's inputs that the program takes as inputs, in order; ``watched`` those that it
    takes as parameters, by name.  ``given_on`` says where each of ``inputs`` is (None: it is a number), ``wanted_on`` where
    eager has each result.  ``strides`` gives, for each result, the strides that eager's has where these are not those of a
    dense tensor (sympy expressions where sizes are symbolic).
    """

    program: Program
    inputs: tuple[int, ...]
    watched: dict[str, int]
    outputs: tuple[GraphOutput, ...]
    given_on: tuple[torch.device | None, ...]
    wanted_on: tuple[torch.device, ...]
    strides: tuple[tuple[tuple[Any, ...], tuple[Any, ...]] | None, ...]  # (sizes, strides)
    symbols: tuple[SymbolSource, ...]


def graph_program(module: fx.GraphModule, name: str, watched: Collection[int] = ()) -> GraphProgram:
    """The program of ``module``, a functional graph whose nodes hold fake tensors; ``module`` is not changed.

    ``watched`` are the positions of inputs that rarely change: they become parameters, whose values whoever loads the
    program brings.
    Raises :class:`UnsupportedError` for what a program cannot hold: floating-point numbers as arguments, tensors that are
    not dense.
    """
    working = fx.GraphModule(module, copy.deepcopy(module.graph))
    return _Extraction(working, name, watched).result()


class _Extraction:
    """Takes everything out of one graph that is no computation, and collects how to put it back."""

    def __init__(self, module: fx.GraphModule, name: str, watched: Collection[int]) -> None:
        self.module, self.name = module, name
        self.graph = module.graph
        self.inputs = placeholders(self.graph)
        self.watched = {node.name: at for at, node in enumerate(self.inputs) if at in watched and _is_plain_tensor(node)}
        self.results: list[fx.Node] = []
        self.symbols = tuple(_symbol_sources(self.inputs))
        self.names = DimensionNames({})
        self.parameters: dict[str, torch.Tensor] = {}

    def result(self) -> GraphProgram:
        """The finished program; see :func:`graph_program`."""
        drawn = random_ops(self.module)
        self._read_sizes_from_tensors()
        rewrite_scalar_calls(self.graph)
        rewrite_dynamic_views(self.graph)
        outputs = self._outputs()
        output_node(self.graph).args = (tuple(self.results),)
        self.graph.eliminate_dead_code(is_impure_node=lambda node: node.op in ("placeholder", "output"))
        positions = tuple(i for i, node in enumerate(self.inputs) if node.users)
        for node in self.inputs:
            if not node.users:
                self.graph.erase_node(node)
        given = [i for i in positions if self.inputs[i].name not in self.watched]
        leaves = {position: leaf for leaf, position in enumerate(given)}
        arguments = (*self._constants(), *(self._argument(self.inputs[i], leaves.get(i)) for i in positions))
        self.module.recompile()
        signature = Signature(
            arguments=arguments,
            results=tuple(self._result_spec(node) for node in self.results),
            outputs=tuple(OutputSpec("result", index=index) for index in range(len(self.results))),
            in_spec="",
            out_spec="",
            dynamic=dict(self.names.ranges),
        )
        program = Program(self.name, FxGraph(self.module, arguments, drawn), "fx", signature, self.parameters)
        watched = {name: at for name, at in self.watched.items() if at in positions}
        strides = tuple(_strides(node) for node in self.results)
        given_on = tuple(getattr(self.inputs[position].meta["val"], "device", None) for position in given)
        wanted_on = tuple(node.meta["val"].device for node in self.results)
        return GraphProgram(program, tuple(given), watched, outputs, given_on, wanted_on, strides, self.symbols)

    def _read_sizes_from_tensors(self) -> None:
        """Replace integer inputs that are the size of a tensor input by that size, which the program reads for itself."""
        of_tensor = {source.symbol: source for source in self.symbols if source.axis is not None}
        first_call = next((node for node in self.graph.nodes if node.op != "placeholder"), None)
        for node in self.inputs:
            value = node.meta.get("val")
            source = of_tensor.get(value.node.expr) if isinstance(value, torch.SymInt) else None
            if source is None or not node.users or first_call is None:
                continue
            with self.graph.inserting_before(first_call):
                size = self.graph.call_function(aten.sym_size.int, (self.inputs[source.position], source.axis))
            size.meta = dict(node.meta)
            node.replace_all_uses_with(size)

    # ----------------------------------------------------------------------------------------------------------- outputs

    def _outputs(self) -> tuple[GraphOutput, ...]:
        (values,) = output_node(self.graph).args
        assert isinstance(values, (list, tuple))
        return tuple(self._output(value) for value in values)

    def _output(self, value: Any) -> GraphOutput:
        if not isinstance(value, fx.Node):
            return GraphOutput(value=value)
        fake = value.meta.get("val")
        if isinstance(fake, torch.SymInt):
            return GraphOutput(value=fake.node.expr)
        if not isinstance(fake, torch.Tensor):
            return GraphOutput(value=fake)
        root, views = _through_views(value)
        if root.op == "placeholder":
            return GraphOutput(input=self.inputs.index(root), views=views)
        if root not in self.results:
            self.results.append(root)
        return GraphOutput(result=self.results.index(root), views=views)

    def _result_spec(self, node: fx.Node) -> ResultSpec:
        value = node.meta["val"]
        return ResultSpec(self.names.dims(value.shape), dtype_name(value.dtype))

    # --------------------------------------------------------------------------------------------------------- arguments

    def _argument(self, node: fx.Node, leaf: int | None) -> ArgumentSpec:
        """The description of an input, ``leaf`` of the call; None for a parameter."""
        if leaf is None:
            value = node.meta["val"]
            return ArgumentSpec(node.name, "parameter", tuple(value.shape), dtype_name(value.dtype))
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            _refuse_layout(node, value)
            self.names.observe(node.name, value, {})
            return ArgumentSpec(node.name, "input", self.names.dims(value.shape), dtype_name(value.dtype), leaf)
        if isinstance(value, (torch.SymInt, int)) and not isinstance(value, bool):
            self.names.name_scalar(node.name, value)
            return ArgumentSpec(node.name, "input", None, "int64", leaf)
        reason = f"is a {type(value).__name__}: only tensors and integers can be inputs of a compiled graph"
        raise UnsupportedError(f"{self.name}: input '{node.name}' {reason}", (UnsupportedOp(node.name, reason),))

    def _constants(self) -> tuple[ArgumentSpec, ...]:
        """Tensors that the graph itself holds, as parameters before all inputs; the smallest stay where passes see them."""
        specs: list[ArgumentSpec] = []
        first = next(iter(self.graph.nodes))
        for node in [node for node in self.graph.nodes if node.op == "get_attr"]:
            held = _held(self.module, str(node.target))
            if not isinstance(held, torch.Tensor) or held.numel() <= _LARGEST_CONSTANT:
                continue
            with self.graph.inserting_before(first):
                argument = self.graph.placeholder(f"constant_{len(specs)}")
            argument.meta = {"val": held, **node.meta}
            node.replace_all_uses_with(argument)
            self.graph.erase_node(node)
            name = str(node.target)
            self.parameters[name] = held.detach().contiguous()
            specs.append(ArgumentSpec(name, "parameter", tuple(held.shape), dtype_name(held.dtype)))
        return tuple(specs)


def _is_plain_tensor(node: fx.Node) -> bool:
    """Is it a dense tensor of known sizes?"""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    return all(isinstance(size, int) for size in value.shape)


def _held(module: fx.GraphModule, path: str) -> Any:
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    return value


def _symbol_sources(inputs: Sequence[fx.Node]) -> list[SymbolSource]:
    """Each symbol of the shapes once, preferably as the size of a tensor."""
    found: dict[Any, SymbolSource] = {}
    for position, node in enumerate(inputs):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            for axis, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                    found.setdefault(size.node.expr, SymbolSource(size.node.expr, position, axis))
    for position, node in enumerate(inputs):
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt) and value.node.expr.is_Symbol:
            found.setdefault(value.node.expr, SymbolSource(value.node.expr, position, None))
    return list(found.values())


def _through_views(node: fx.Node) -> tuple[fx.Node, tuple[ViewStep, ...]]:
    """The node that ``node`` is a view of, and the steps from there; itself where it is none."""
    steps: list[ViewStep] = []
    while node.op == "call_function" and getattr(node.target, "overloadpacket", None) in _VIEWS:
        base, *rest = node.args
        if not isinstance(base, fx.Node) or base.op == "get_attr" or _has_nodes((rest, node.kwargs)):
            break
        steps.append(ViewStep(node.target, tuple(rest), dict(node.kwargs)))
        node = base
    return node, tuple(reversed(steps))


def _has_nodes(arguments: Any) -> bool:
    found: list[fx.Node] = []
    fx.map_arg(arguments, found.append)
    return bool(found)


def _strides(node: fx.Node) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
    """Sizes and strides of a result that eager would not have dense, as numbers or sympy expressions."""
    value = node.meta["val"]
    if value.is_contiguous():
        return None

    def plain(sizes: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(size.node.expr if isinstance(size, torch.SymInt) else int(size) for size in sizes)

    return plain(value.shape), plain(value.stride())


def _refuse_layout(node: fx.Node, value: torch.Tensor) -> None:
    if value.layout is not torch.strided:
        reason = f"is a tensor of layout {value.layout}: only dense tensors can be compiled"
        raise UnsupportedError(
            f"input '{node.name}' {reason}", (UnsupportedOp(target_name(node), reason, node_source(node)),)
        )
