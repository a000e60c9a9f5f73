"""torch.export, decomposition and lifting: an ``nn.Module`` and example inputs in, a :class:`Program` at level "fx" out.

Everything that is not the computation itself leaves the graph here and goes into the signature: weights, pytrees, outputs
that are returned twice or passed through, constants, mutations, names of dynamic dimensions.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram, _trace
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind, OutputSpec, SymIntArgument
from torch.utils import _pytree as pytree

from mlirstack.errors import UnsupportedError, UsageError
from mlirstack.frontend import program as contract
from mlirstack.frontend import trees
from mlirstack.frontend.associative import rewrite_associative_scans
from mlirstack.frontend.assumed import Assumptions
from mlirstack.frontend.bodies import make_bodies_functional
from mlirstack.frontend.capture_errors import capture_error, refuse_derivatives
from mlirstack.frontend.checks import Guards, keep_checks_of_tensors, name_checks, remove_dead_nodes
from mlirstack.frontend.containers import register_containers
from mlirstack.frontend.decompositions.data_places import rewrite_data_narrows
from mlirstack.frontend.decompositions.empty_tensors import rewrite_empty_tensors
from mlirstack.frontend.decompositions.masks import rewrite_masks
from mlirstack.frontend.decompositions.prims import rewrite_prim_views
from mlirstack.frontend.decompositions.uniform import rewrite_uniform_constants
from mlirstack.frontend.dynamic import AxisSpec, DimensionNames, leaf_axes, plain_shapes, tile_small_axes
from mlirstack.frontend.dynamic_views import rewrite_dynamic_views
from mlirstack.frontend.graph import (
    FxGraph,
    dtype_name,
    fill_in_source_lines,
    graph_modules,
    output_node,
    placeholders,
)
from mlirstack.frontend.layouts import give_as_stored, order_of, take_as_stored
from mlirstack.frontend.literals import refuse_overflowing_numbers
from mlirstack.frontend.program import ArgumentSpec, Mutation, Program, ResultSpec, Signature
from mlirstack.frontend.quantized import refuse_packed_modules
from mlirstack.frontend.quick_capture import quick_capture
from mlirstack.frontend.random_numbers import CALLS, Generator, bind_generator, first_values
from mlirstack.frontend.randomness import random_ops, remaining_random_ops
from mlirstack.frontend.range_outputs import rewrite_range_outputs
from mlirstack.frontend.repeated import decompose, rules
from mlirstack.frontend.scalars import rewrite_scalar_calls
from mlirstack.frontend.writes import refuse_lost_writes, refuse_shared_buffers

INLINE_ELEMENTS = 1  # lifted constants of at most that many elements stay in the graph, where passes can fold them

Scalar = int | float | bool | str | None

Inputs = Sequence[Any] | torch.Tensor
"""Positional inputs of a call."""


def given_inputs(inputs: Inputs) -> tuple[Any, ...]:
    """The positional inputs of a call; a tensor alone is one input, not a sequence of its rows."""
    return (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)


def export(
    model: nn.Module | ExportedProgram,
    inputs: Inputs = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    name: str = "model",
    allow_random: bool = False,
) -> Program:
    """Export ``model`` as called with ``inputs`` and ``kwargs`` (pytrees of tensors and Python scalars).

    ``inputs`` are the positional ones; a tensor alone is one input.  ``dynamic_shapes`` is torch.export's.  Python scalars
    among the inputs become part of the program, as torch.export has it: :attr:`Signature.specialized` says which values it
    holds for.  The mode of the model (train or eval) is taken as it is.  ``allow_random`` lets the program draw random
    numbers of its own where the model draws torch's: of the same distribution, anew in each call, from a seed that torch's
    default generator gives now.  Raises :class:`UnsupportedError` with the user's line where torch.export cannot capture
    the model.
    """
    inputs = given_inputs(inputs)
    with torch.no_grad(), _quiet():
        if isinstance(model, ExportedProgram):
            exported, axes = model, None
        else:
            exported, axes = _capture(model, inputs, dict(kwargs or {}), dynamic_shapes)
        refuse_overflowing_numbers(exported.graph_module)
        make_bodies_functional(exported.graph_module)
        rewrite_associative_scans(exported.graph_module)
        rewrite_data_narrows(exported.graph_module)
        rewrite_masks(exported.graph_module)
        rewrite_prim_views(exported.graph_module)
        rewrite_range_outputs(exported.graph_module)
        # Before decompositions, some of which divide by sizes; those that cut operands into pieces leave more for later.
        rewrite_empty_tensors(exported.graph_module)
        drawn = random_ops(exported.graph_module)
        keep_checks_of_tensors(exported.graph_module)
        assumptions, guards = Assumptions(exported), Guards(exported)
        try:
            if allow_random:
                decomposed = exported.run_decompositions(dict(rules().table) | Generator().decompositions())
            else:
                decomposed = decompose(exported, rules())
        except Exception as error:  # raised by a decomposition of torch's, on the user's graph
            refuse_shared_buffers(exported)
            raise capture_error("torch.export cannot decompose the model", error) from error
    assumptions.refuse()
    guards.write(decomposed.graph)
    name_checks(decomposed.graph)
    if allow_random:
        drawn = remaining_random_ops(decomposed.graph_module)
    lifting = _Lifting(decomposed, axes)
    mutated = frozenset(m.name for m in lifting.mutations if m.name is not None)
    graph = FxGraph(decomposed.graph_module, lifting.arguments, drawn, mutated, lifting.names.ranges)
    signature = lifting.signature()
    leaves = pytree.tree_leaves((inputs, dict(kwargs or {})))
    return Program(name, graph, "fx", signature, lifting.parameters, _not_contiguous(signature, leaves))


def _not_contiguous(signature: Signature, leaves: Sequence[Any]) -> tuple[str, ...]:
    """Names of the inputs that are not contiguous in the example, in the order of dimensions in which they are taken.

    A program read from a file has no example.
    """
    given = [(spec, leaves[spec.leaf]) for spec in signature.arguments if spec.leaf is not None and spec.leaf < len(leaves)]
    tensors = [(spec, leaf) for spec, leaf in given if isinstance(leaf, torch.Tensor)]
    return tuple(s.name for s, leaf in tensors if not (leaf.permute(s.order) if s.order else leaf).is_contiguous())


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's warnings, logged tracebacks and printed graphs: what matters arrives as an exception."""
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    vars(_trace)["print"] = lambda *args, **kwargs: None  # of the graph up to an error, whole
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        vars(_trace).pop("print", None)
        logging.disable(disabled)


def _capture(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Any
) -> tuple[ExportedProgram, list[AxisSpec] | None]:
    """The exported program, and what the user marked dynamic on each input leaf."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    axes: list[AxisSpec] | None = None
    shapes = plain_shapes(model, args, kwargs, shapes)
    if shapes:
        axes = leaf_axes(model, args, kwargs, shapes)
        leaves = tile_small_axes(leaves, axes)
    args, kwargs = pytree.tree_unflatten(_distinct(leaves), spec)
    refuse_packed_modules(model)
    register_containers(model)
    failures: list[Exception] = []
    # Tracing the Python code is quick and permissive; the strict tracer also takes scalars read from tensors (.item()).
    for strict in (False, True):
        try:
            with warnings.catch_warnings(record=True) as warned, nullcontext() if strict else quick_capture():
                warnings.simplefilter("always")
                exported = torch.export.export(model, args, kwargs, dynamic_shapes=shapes, strict=strict)
        except Exception as error:  # whatever the user's own code raises
            failures.append(error)
            continue
        refuse_lost_writes(exported, [str(w.message) for w in warned])
        refuse_derivatives(exported)
        return exported, axes
    raise capture_error("torch.export cannot capture the model", failures[0]) from failures[0]


def _distinct(leaves: Sequence[Any]) -> list[Any]:
    """Example inputs without repetitions: torch.export takes one tensor given twice for one input that is read twice."""
    seen: set[int] = set()
    found: list[Any] = []
    for leaf in leaves:
        repeated = isinstance(leaf, torch.Tensor) and id(leaf) in seen
        seen.add(id(leaf))
        found.append(leaf.clone() if repeated else leaf)
    return found


@dataclass
class _Lifting:
    """Rewrites the graph of one decomposed program in place and collects its signature on the way."""

    program: ExportedProgram
    axes: Sequence[AxisSpec] | None
    arguments: tuple[ArgumentSpec, ...] = ()
    parameters: dict[str, torch.Tensor] = field(default_factory=dict)
    outputs: list[contract.OutputSpec] = field(default_factory=list)
    mutations: list[Mutation] = field(default_factory=list)
    specialized: list[tuple[int, Scalar]] = field(default_factory=list)
    results: list[fx.Node] = field(default_factory=list)
    stored: dict[fx.Node, fx.Node] = field(default_factory=dict)  # result in memory order → as torch sees it

    def __post_init__(self) -> None:
        self.graph = self.program.graph_module.graph
        self.names = DimensionNames(self.program.range_constraints)
        self.specs: dict[fx.Node, ArgumentSpec] = {}
        rewrite_empty_tensors(self.program.graph_module)
        for module in graph_modules(self.program.graph_module):
            remove_dead_nodes(module.graph)
            rewrite_scalar_calls(module.graph)
            rewrite_dynamic_views(module.graph)
            fill_in_source_lines(module.graph)
            module.recompile()
        self._lift_inputs()
        rewrite_uniform_constants(self.program.graph_module)
        self._lift_outputs()
        remove_dead_nodes(self.graph)
        self.program.graph_module.recompile()
        self.arguments = tuple(self.specs[node] for node in placeholders(self.graph))

    def signature(self) -> Signature:
        call = self.program.call_spec
        assert call.in_spec is not None and call.out_spec is not None
        return Signature(
            arguments=self.arguments,
            results=tuple(self._result(node) for node in self.results),
            outputs=tuple(self.outputs),
            in_spec=trees.dumps(call.in_spec),
            out_spec=trees.dumps(call.out_spec),
            mutations=tuple(self.mutations),
            dynamic=dict(self.names.ranges),
            specialized=tuple(self.specialized),
        )

    # ------------------------------------------------------------------------------------------------------------ inputs

    def _lift_inputs(self) -> None:
        mutated = {s.target for s in self.program.graph_signature.output_specs if s.kind is not OutputKind.USER_OUTPUT}
        bound: dict[tuple[Any, ...], fx.Node] = {}
        leaf = 0
        for spec, node in zip(self.program.graph_signature.input_specs, placeholders(self.graph), strict=True):
            if spec.kind is InputKind.USER_INPUT:
                self._lift_user_input(node, spec, leaf)
                leaf += 1
                continue
            value = self._bound_value(spec)
            target = spec.target or node.name
            key = (value.data_ptr(), value.shape, value.stride(), value.dtype)
            if not node.users and target not in mutated:
                self.graph.erase_node(node)  # an argument that nothing reads
            elif spec.kind is InputKind.CONSTANT_TENSOR and self._fits_inline(node, value):
                self._inline(node, target, value)
            elif target not in mutated and value.numel() and key in bound:  # tied weights: stored and passed once
                node.replace_all_uses_with(bound[key])
                self.graph.erase_node(node)
            else:
                if target not in mutated:
                    bound[key] = node
                self.parameters[target] = value
                self.specs[node] = ArgumentSpec(target, "parameter", tuple(value.shape), dtype_name(value.dtype))

    def _lift_user_input(self, node: fx.Node, spec: InputSpec, leaf: int) -> None:
        if isinstance(spec.arg, ConstantArgument):
            self.specialized.append((leaf, spec.arg.value))
            node.replace_all_uses_with(spec.arg.value)  # type: ignore[arg-type]
            self.graph.erase_node(node)
            return
        value = node.meta["val"]
        if not isinstance(value, (torch.Tensor, int, float, torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise UnsupportedError(f"input '{node.name}' is a '{type(value).__name__}', no tensor, number or text")
        if isinstance(spec.arg, SymIntArgument) or not isinstance(value, torch.Tensor):
            self.names.name_scalar(node.name, value)
            self.specs[node] = ArgumentSpec(node.name, "input", None, _scalar_dtype(value), leaf)
            return
        self.names.observe(node.name, value, self.axes[leaf] if self.axes else {})
        order = order_of(value) if any(user.op != "output" for user in node.users) else None
        shape, dtype = self.names.dims(value.shape), dtype_name(value.dtype)
        self.specs[node] = ArgumentSpec(node.name, "input", shape, dtype, leaf, order)
        if order is not None:
            take_as_stored(self.graph, node, order)

    def _bound_value(self, spec: InputSpec) -> torch.Tensor:
        if spec.kind not in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            raise UnsupportedError(f"the model holds '{spec.target}', which is no tensor ({spec.kind.name.lower()})")
        stored = self.program.state_dict.get(spec.target or "")
        value = self.program.constants[spec.target or ""] if stored is None else stored
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            raise UnsupportedError(f"the model holds '{spec.target}', which is not a dense tensor")
        return value.detach().cpu()

    def _fits_inline(self, node: fx.Node, value: torch.Tensor) -> bool:
        """A constant so small that passes should see its value; the importer takes none in lists, results need arguments."""
        in_list = any(isinstance(a, (list, tuple)) and node in a for user in node.users for a in user.args)
        return value.numel() <= INLINE_ELEMENTS and not in_list

    def _inline(self, node: fx.Node, target: str, value: torch.Tensor) -> None:
        attribute = target.replace(".", "_")
        self.program.graph_module.register_buffer(attribute, value, persistent=False)
        with self.graph.inserting_before(node):
            constant = self.graph.get_attr(attribute)
        constant.meta = dict(node.meta)
        node.replace_all_uses_with(constant)
        self.graph.erase_node(node)

    # ----------------------------------------------------------------------------------------------------------- outputs

    def _lift_outputs(self) -> None:
        output = output_node(self.graph)
        for spec, value in zip(self.program.graph_signature.output_specs, output.args[0], strict=True):  # type: ignore[arg-type]
            if spec.kind is OutputKind.USER_OUTPUT:
                self.outputs.append(self._user_output(value))
            else:
                self._mutation(spec, value)
        self._lift_generator()
        output.args = (tuple(self.results),)

    def _lift_generator(self) -> None:
        """The seed of the program's own random numbers and the count of its calls, which every call adds to."""
        bound = bind_generator(self.graph)
        if bound is None:
            return
        values = first_values()
        for name, node in bound.placeholders.items():
            self.parameters[name] = values[name]
            self.specs[node] = ArgumentSpec(name, "parameter", (), dtype_name(values[name].dtype))
        self.mutations.append(Mutation(self._result_index(bound.next_calls), name=CALLS))

    def _user_output(self, value: Any) -> contract.OutputSpec:
        if not isinstance(value, fx.Node):
            return contract.OutputSpec("constant", value=value)
        if value in self.specs:
            spec = self.specs[value]
            return contract.OutputSpec(
                spec.kind,
                index=spec.leaf,
                name=None if spec.kind == "input" else spec.name,
                shape=spec.shape,
                dtype=spec.dtype,
                scalar=spec.shape is None,
            )
        result = self._result(value)
        index = self._result_index(self._as_stored(value))
        return contract.OutputSpec(
            "result", index=index, shape=result.shape, dtype=result.dtype, scalar=result.shape is None
        )

    def _mutation(self, spec: OutputSpec, value: Any) -> None:
        if spec.kind is OutputKind.USER_INPUT_MUTATION:
            target = next(n for n in self.specs if n.name == spec.target)
        elif spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION):
            target = next(n for n, s in self.specs.items() if s.kind == "parameter" and s.name == spec.target)
        else:
            raise UsageError(f"an exported program with outputs of kind '{spec.kind.name.lower()}' is not a forward pass")
        if value is target:
            return  # written with itself
        mutated = self.specs[target]
        name = None if mutated.kind == "input" else mutated.name
        self.mutations.append(Mutation(self._result_index(value), leaf=mutated.leaf, name=name))

    def _result_index(self, node: fx.Node) -> int:
        """Position among the function's results; each node is returned once (twice the same value crashes passes)."""
        if node not in self.results:
            self.results.append(node)
        return self.results.index(node)

    def _as_stored(self, node: fx.Node) -> fx.Node:
        """A node for what eager's result is in memory: ``node`` itself, or a permutation of it."""
        value = node.meta["val"]
        order = order_of(value) if isinstance(value, torch.Tensor) else None
        if order is None:
            return node
        found = next((stored for stored, seen in self.stored.items() if seen is node), None)
        if found is None:
            found = give_as_stored(self.graph, node, order)
            self.stored[found] = node
        return found

    def _result(self, node: fx.Node) -> ResultSpec:
        seen = self.stored.get(node, node)
        value = seen.meta["val"]
        if isinstance(value, torch.Tensor):
            order = None if seen is node else order_of(value)
            return ResultSpec(self.names.dims(value.shape), dtype_name(value.dtype), order)
        return ResultSpec(None, _scalar_dtype(value))


def _scalar_dtype(value: object) -> str:
    if isinstance(value, (bool, torch.SymBool)):
        return "bool"
    return "int64" if isinstance(value, (int, torch.SymInt)) else "float64"
