"""FX graphs as torch prints them, read back: names, dtypes, shapes, operands and lines of the user's program.

A printed graph is Python with the tensors' types as annotations (``"f32[4, 8][8, 1]cpu"``); a recorded trace holds nothing
else, so that this one reader serves recorded traces and, through ``print_readable``, any graph module.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch

from mlirstack.dynamo.explain.trace import Trace

_BYTES = {
    "f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u64": 8, "u32": 4, "u16": 2, "u8": 1,
    "b8": 1, "c64": 8, "c128": 16, "f8e4m3fn": 1, "f8e5m2": 1, "f8e4m3fnuz": 1, "f8e5m2fnuz": 1,
}  # fmt: skip
_TYPE = re.compile(r"(?P<dtype>[a-z]+\d\w*)\[(?P<shape>[^\]]*)\]")
_SOURCE = re.compile(r"# File: (?P<file>.+?):(?P<line>\d+) in (?P<name>\S+?), code: (?P<code>.*)")
# Ops that give another look at their operand: nothing is computed and nothing moved.
_VIEWS = frozenset({
    "view", "get_attr", "reshape",
    "permute", "transpose", "t", "expand", "squeeze", "unsqueeze", "slice", "select", "as_strided",
    "alias", "detach", "getitem", "split", "split_with_sizes", "unbind", "chunk", "flatten", "unflatten", "narrow",
    "diagonal", "lift_fresh", "view_as", "expand_as", "_unsafe_view", "size", "sym_size", "unsafe_split", "movedim",
    "swapaxes",
})  # fmt: skip
_OPERATORS = {"mult": "mul", "matmult": "matmul", "usub": "neg", "bitand": "and", "bitor": "or"}
# The steps of a graph on its way, by the name of the trace.
STEPS = {
    "dynamo_output_graph": "dynamo", "aot_joint_graph": "joint", "aot_inference_graph": "decomposed",
    "aot_forward_graph": "forward", "aot_backward_graph": "backward",
}  # fmt: skip


@dataclass(frozen=True)
class TensorType:
    """dtype (torch's short name: "f32") and shape; a dimension that is no number is a symbol."""

    dtype: str
    shape: tuple[int | str, ...]

    @property
    def bytes(self) -> int | None:
        """Size in bytes, without padding; None where a dimension is a symbol or the dtype is unknown."""
        size = _BYTES.get(self.dtype)
        for dimension in self.shape:
            if size is None or isinstance(dimension, str):
                return None
            size *= dimension
        return size

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def bare_op(target: str) -> str:
    """The name of an op without its namespace and its overload; ``target`` without "torch.ops."."""
    parts = target.split(".")
    return parts[1] if len(parts) > 2 and parts[0] != "torch" else parts[-1]


@dataclass(frozen=True)
class Node:
    """One node: ``target`` is the op ("aten.add.Tensor", "input" for a placeholder), ``text`` its expression."""

    name: str
    target: str
    operands: tuple[str, ...]
    type: TensorType | None
    text: str = ""
    file: str = ""
    line: int = 0

    @property
    def op(self) -> str:
        """The op's bare name: "add" for "aten.add.Tensor", "linear" for "torch._C._nn.linear"."""
        return bare_op(self.target)

    @property
    def is_input(self) -> bool:
        """Whether it is an argument of the graph."""
        return self.target == "input"

    @property
    def is_view(self) -> bool:
        """Whether it only looks at its operand in another way."""
        return self.op in _VIEWS

    @property
    def writes(self) -> bool:
        """Whether it changes something in place, so that it stays where nobody uses its result."""
        return self.op == "setitem" or (self.op.endswith("_") and not self.op.endswith("__")) or "assert" in self.op


@dataclass(frozen=True)
class Graph:
    """A graph: the ``step`` it comes from ("dynamo", "joint", …, "post-grad"), its compilation, nodes and outputs.

    One that is printed in a way that cannot be read is kept as text: not ``readable``, without nodes.
    """

    step: str
    compile_id: str
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    text: str
    readable: bool = True

    @cached_property
    def by_name(self) -> dict[str, Node]:
        """The nodes by name."""
        return {node.name: node for node in self.nodes}

    @property
    def calls(self) -> tuple[Node, ...]:
        """The nodes that are no arguments."""
        return tuple(node for node in self.nodes if not node.is_input)

    @property
    def computing(self) -> tuple[Node, ...]:
        """The nodes that compute something: no arguments, no views."""
        return tuple(node for node in self.calls if not node.is_view)

    @cached_property
    def users(self) -> Counter[str]:
        """How many nodes (the output counts as one) use each node."""
        uses = Counter(name for node in self.nodes for name in set(node.operands))
        return uses + Counter(set(self.outputs))


def graphs_of(trace: Trace) -> Iterator[Graph]:
    """The graphs of a trace in order; the post-grad graphs of forward and backward come as they were compiled."""
    for event in trace.of(*STEPS, "inductor_post_grad_graph"):
        step, compile_id = STEPS.get(event.kind, "post-grad"), event.compile_id or ""
        try:
            yield read_graph(event.payload, step, compile_id)
        except (SyntaxError, StopIteration):  # no Python, or nothing that is a graph
            yield Graph(step, compile_id, (), (), event.payload, readable=False)


def graph_of_module(module: torch.fx.GraphModule, step: str = "fx") -> Graph:
    """Any graph module; nodes without ``meta["val"]`` have no types."""
    text = module.print_readable(print_output=False, include_stride=True, include_device=True)
    return read_graph(text, step, "")


def read_graph(text: str, step: str, compile_id: str) -> Graph:
    """Read a printed graph; what stands after the class (a note of torch's) is left out."""
    code = _class_only(text)
    lines = code.splitlines()
    function = next(
        node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef) and node.name == "forward"
    )
    sources = _sources(lines)
    nodes: dict[str, Node] = {}
    for argument in function.args.args[1:]:
        if argument.annotation is not None:
            nodes[argument.arg] = Node(argument.arg, "input", (), _type(_annotation(argument.annotation)))
    outputs: tuple[str, ...] = ()
    for statement in function.body:
        if isinstance(statement, ast.Return) and statement.value is not None:
            outputs = tuple(_names(statement.value, nodes))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name, annotation = statement.target.id, _annotation(statement.annotation)
            if statement.value is None:  # an argument of a joint graph, whose signature is a tree
                nodes[name] = Node(name, "input", (), _type(annotation))
            else:
                nodes[name] = _call(name, statement.value, annotation, nodes, sources.get(statement.lineno, ("", 0)))
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            if isinstance(statement.value, ast.Constant):  # "x = None": the end of x
                continue
            if isinstance(statement.value, ast.Name) and statement.value.id in nodes:  # another name for an argument
                nodes[name] = Node(name, "alias", (statement.value.id,), nodes[statement.value.id].type)
                continue
            nodes[name] = _call(name, statement.value, "", nodes, sources.get(statement.lineno, ("", 0)))
    return Graph(step, compile_id, tuple(nodes.values()), outputs, code)


def _class_only(text: str) -> str:
    lines = text.splitlines()
    start = next((index for index, line in enumerate(lines) if line.lstrip().startswith("class ")), 0)
    indent = len(lines[start]) - len(lines[start].lstrip()) if lines else 0
    body = ["class Graph:"]  # torch's own name of the class is not always one ("<lambda>")
    for line in lines[start + 1 :]:
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            break
        body.append(line[indent:])
    return "\n".join(body).rstrip() + "\n"


def _sources(lines: list[str]) -> dict[int, tuple[str, int]]:
    """Line of the printed text → file and line of the user's program, from the comment above it."""
    found: dict[int, tuple[str, int]] = {}
    place = ("", 0)
    for number, line in enumerate(lines, 1):
        comment = _SOURCE.search(line)
        if comment:
            place = (comment["file"], int(comment["line"]))
        found[number] = place
    return found


def _call(name: str, value: ast.expr, annotation: str, nodes: dict[str, Node], place: tuple[str, int]) -> Node:
    target = _target(value)
    return Node(name, target, tuple(_names(value, nodes)), _type(annotation), ast.unparse(value), *place)


def _target(value: ast.expr) -> str:
    if isinstance(value, ast.Call):
        text = ast.unparse(value.func)
    elif isinstance(value, ast.Subscript):
        text = "getitem"
    elif isinstance(value, (ast.BinOp, ast.UnaryOp)):
        text = type(value.op).__name__.lower()
        text = _OPERATORS.get(text, text)
    elif isinstance(value, ast.Compare):
        text = type(value.ops[0]).__name__.lower()
    elif isinstance(value, ast.Attribute):  # a constant, or the body of a higher-order op
        text = "get_attr"
    else:
        text = ast.unparse(value)
    return text.removeprefix("torch.ops.")


def _names(value: ast.expr, nodes: dict[str, Node]) -> Iterator[str]:
    """The nodes that an expression reads, each once."""
    seen: set[str] = set()
    for part in ast.walk(value):
        if isinstance(part, ast.Name) and part.id in nodes and part.id not in seen:
            seen.add(part.id)
            yield part.id


def _annotation(expression: ast.expr) -> str:
    return str(expression.value) if isinstance(expression, ast.Constant) else ast.unparse(expression)


def _type(annotation: str) -> TensorType | None:
    found = _TYPE.match(annotation)
    if found is None:
        return None
    shape = tuple(int(d) if d.isdigit() else d for d in (part.strip() for part in found["shape"].split(",")) if d)
    return TensorType(found["dtype"], shape)
