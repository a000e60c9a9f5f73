"""The exported graph at level "fx": torch.export's decomposed graph without weights, and what was noted while exporting.

It comes out of :mod:`mlirstack.frontend.export` and goes into :mod:`mlirstack.frontend.import_fx`, which never changes it,
so that one graph can be imported once for each route.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from mlirstack.errors import SourceLine, UnsupportedOp
from mlirstack.frontend.program import ArgumentSpec

_TORCH = str(Path(torch.__file__).parent)
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


@dataclass(frozen=True)
class FxGraph:
    """A functional graph: placeholders are the arguments of ``@main`` in order, the output is a tuple of distinct nodes.

    ``random_ops`` lists the live operations of the undecomposed graph that draw random numbers; ``mutated`` names the
    parameters that the program writes to; ``ranges`` are those of the dynamic dimensions, as in the program's signature.
    """

    module: fx.GraphModule
    arguments: tuple[ArgumentSpec, ...]
    random_ops: tuple[UnsupportedOp, ...] = ()
    mutated: frozenset[str] = frozenset()
    ranges: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)

    def most(self, argument: ArgumentSpec) -> tuple[int | None, ...]:
        """The most that each dimension can be of an argument as ``@main`` takes it; None where there is no limit."""
        shape = argument.shape or ()
        sizes = [size if isinstance(size, int) else self.ranges.get(size, (0, None))[1] for size in shape]
        return tuple(sizes[axis] for axis in argument.order or range(len(sizes)))

    @cached_property
    def text(self) -> str:
        """Python text: one comment line an argument (parameters by name), then the graph with source lines."""
        header = "\n".join(
            f"# {node.name}: {spec.kind} {spec.name}: {spec.dtype}{'' if spec.shape is None else list(spec.shape)}"
            + (f", taken in the order {list(spec.order)}" if spec.order else "")
            for node, spec in zip(placeholders(self.module.graph), self.arguments, strict=True)
        )
        return header + "\n" + self.module.print_readable(print_output=False)

    def node_lines(self) -> dict[fx.Node, int]:
        """The line of :attr:`text`, counted from 1, on which each node stands that the text shows on one of its own."""
        lines = [line.strip() for line in self.text.splitlines()]
        found: dict[fx.Node, int] = {}
        at = 0
        for node in printed_nodes(self.module):
            # Names are unique in a graph only; the text shows graphs and nodes in the order in which we see them.
            heads = (f"{node.name}: ", f"{node.name} = ")
            position = next((i for i in range(at, len(lines)) if lines[i].startswith(heads)), None)
            if position is not None:
                found[node], at = position + 1, position + 1
        return found


def printed_nodes(module: fx.GraphModule) -> Iterator[fx.Node]:
    """The nodes of ``module`` and of the graphs inside it, in the order in which they are printed."""
    yield from (node for node in module.graph.nodes if node.op not in ("placeholder", "output"))
    for child in module.children():
        if isinstance(child, fx.GraphModule):
            yield from printed_nodes(child)


def placeholders(graph: fx.Graph) -> list[fx.Node]:
    """The placeholder nodes of ``graph`` in order."""
    return [node for node in graph.nodes if node.op == "placeholder"]


def output_node(graph: fx.Graph) -> fx.Node:
    """The one output node of ``graph``."""
    return next(node for node in reversed(graph.nodes) if node.op == "output")


def graph_modules(module: torch.nn.Module) -> list[fx.GraphModule]:
    """``module`` and the bodies of its control flow, the outer ones first."""
    return [child for child in module.modules() if isinstance(child, fx.GraphModule)]


def calls(module: torch.nn.Module) -> Iterator[fx.Node]:
    """All ``call_function`` nodes of a graph module, those in bodies of control flow included."""
    for child in graph_modules(module):
        yield from (node for node in child.graph.nodes if node.op == "call_function")


def new_call(like: fx.Node, op: Any, *args: Any, **options: Any) -> fx.Node:
    """A call at the insertion point that stands where ``like`` does in the user's program."""
    made = like.graph.call_function(op, args, options)
    made.meta = place_of(like)
    return made


def place_of(node: fx.Node) -> dict[str, Any]:
    """What says where ``node`` stands in the user's program, of what is noted with it."""
    return {key: node.meta[key] for key in ("stack_trace", "nn_module_stack") if key in node.meta}


def node_frames(node: fx.Node) -> list[SourceLine]:
    """The Python calls that led to ``node``, outermost first."""
    frames = [SourceLine(file, int(line)) for file, line in _FRAME.findall(node.meta.get("stack_trace") or "")]
    # Marks of what export put in: its own nodes, and code of graphs, which bodies of control flow are captured from.
    return [frame for frame in frames if not frame.file.startswith(("torch/", "<"))]


def node_source(node: fx.Node) -> SourceLine | None:
    """The user's innermost line that ``node`` comes from; frames inside torch only if there is no other."""
    frames = node_frames(node)
    for frame in reversed(frames):
        if not frame.file.startswith(_TORCH):
            return frame
    return frames[-1] if frames else None


def fill_in_source_lines(graph: fx.Graph) -> None:
    """Give nodes that export put in (sizes of dynamic dimensions) the source line of the node that needs them."""
    for node in reversed(graph.nodes):
        if node.op == "call_function" and node_source(node) is None:
            stacks = (user.meta.get("stack_trace") for user in node.users)
            node.meta["stack_trace"] = next((stack for stack in stacks if stack), None)


def node_tensors(node: fx.Node) -> list[torch.Tensor]:
    """The (fake) tensors that ``node`` produces."""
    return [v for v in _flatten(node.meta.get("val")) if isinstance(v, torch.Tensor)]


def written_operands(node: fx.Node) -> Iterator[fx.Node]:
    """The operands that ``node`` writes to."""
    if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable:
        return
    if node.target is torch.ops.aten.detach_.default:
        return  # writes no numbers
    for i, formal in enumerate(node.target._schema.arguments):
        if formal.alias_info is None or not formal.alias_info.is_write:
            continue
        given = node.args[i] if i < len(node.args) else node.kwargs.get(formal.name)
        yield from (x for x in (given if isinstance(given, (list, tuple)) else [given]) if isinstance(x, fx.Node))


def memory_of(node: object) -> int | None:
    """What stands for the memory of a tensor that ``node`` gives; views of it have the same.  None for anything else."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    if not isinstance(value, torch.Tensor) or is_mapped(value):
        return None
    return value.untyped_storage()._cdata


def is_mapped(x: torch.Tensor) -> bool:
    """Is it a row of what ``torch.vmap`` maps over, or under a derivative of ``torch.func``?  Its sizes are not whole."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(x))


def fake_mode(nodes: Iterable[fx.Node]) -> FakeTensorMode | None:
    """The mode of what ``nodes`` compute: values of two modes cannot be computed with together.  None without tensors."""
    tensors = (tensor for node in nodes for tensor in node_tensors(node))
    return next((tensor.fake_mode for tensor in tensors if isinstance(tensor, FakeTensor)), None)


def dtype_name(dtype: torch.dtype) -> str:
    """Torch's name without the prefix: ``"float32"``."""
    return str(dtype).removeprefix("torch.")


def operand_dtypes(node: fx.Node) -> tuple[str, ...]:
    """The dtypes of the tensors that ``node`` reads, in order, e.g. ``("float32", "int64")``."""
    return tuple(dtype_name(t.dtype) for arg in node.all_input_nodes for t in node_tensors(arg))


def target_name(node: fx.Node) -> str:
    """The overload of a call, ``"aten.add.Tensor"``, or the Python name of another callable."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return str(getattr(target, "__name__", target))


def describe(node: fx.Node) -> str:
    """``"aten.add.Tensor(float32, int64)"``."""
    return f"{target_name(node)}({', '.join(operand_dtypes(node))})"


def _flatten(value: object) -> Iterable[object]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flatten(item)
    else:
        yield value
