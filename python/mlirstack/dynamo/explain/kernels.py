"""The code that Inductor writes: its kernels, what each holds and moves, and the buffers of the program around them.

What comes in is the source of a generated module (from the trace) and the graph that it was made of.  Sizes are those of
whole tensors: a kernel moves each buffer that it reads or writes once, one that it changes in place twice.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch

from mlirstack.dynamo.explain.graphs import Graph, Node, TensorType, bare_op, graphs_of
from mlirstack.dynamo.explain.trace import Trace

_AOT_ID = re.compile(r"# AOT ID: \['(\d+)_(\w+)'\]")
_HANDLE = re.compile(r"# \[Provenance debug handles\] (\S+)")
_ORIGINAL = re.compile(r"Original ATen: \[([^\]]*)\]")
_SUFFIX = re.compile(r"^(?:cpp_fused|triton_(?:poi|red|per|tem|for|mix)_fused)_(.*)_\d+$")
_SIGNATURE = re.compile(r"(?:void\s+kernel|def triton_\w+)\(([^)]*)\)")
_DTYPES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32", "int16": "i16",
    "int8": "i8", "uint8": "u8", "bool": "b8", "complex64": "c64", "complex128": "c128",
}  # fmt: skip
_NO_KERNEL = frozenset({
    "assert_size_stride", "assert_alignment", "reinterpret_tensor", "args.clear", "torch.cuda.set_device", "alloc_from_pool",
})  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """One call of a kernel.

    ``kind``: "c++", "triton", or "library" (a kernel that Inductor did not write).  ``fused_ops`` are the ops of the
    post-grad graph that it holds, ``nodes`` these nodes by name where the trace says so; ``bytes`` is what it moves, None
    where a size is not known; ``source`` is its text.
    """

    name: str
    kind: str
    phase: str
    fused_ops: tuple[str, ...]
    nodes: tuple[str, ...]
    bytes: int | None
    lines: tuple[tuple[str, int], ...] = ()
    source: str = ""


@dataclass(frozen=True)
class BufferLife:
    """A buffer of the generated program: its size, the calls between which it lives, and whose memory it takes over."""

    name: str
    bytes: int | None
    first: int
    last: int
    reuses: str | None = None


@dataclass(frozen=True)
class GeneratedModule:
    """A generated module: ``phase`` is inference, forward or backward; ``graph`` is the post-grad graph it was made of."""

    phase: str
    compile_id: str
    kernels: tuple[Kernel, ...]
    buffers: tuple[BufferLife, ...]
    graph: Graph | None
    text: str


def modules_of(trace: Trace) -> tuple[GeneratedModule, ...]:
    """The generated modules of a trace.  A module follows its post-grad graph, and its node mapping follows it."""
    graphs = [graph for graph in graphs_of(trace) if graph.step == "post-grad"]
    events = list(trace.of("inductor_post_grad_graph", "inductor_output_code", "inductor_provenance_tracking_node_mappings"))
    found: list[GeneratedModule] = []
    graph: Graph | None = None
    for index, event in enumerate(events):
        if event.kind == "inductor_post_grad_graph":
            graph = graphs.pop(0)
        elif event.kind == "inductor_output_code" and event.payload:
            mapping: Mapping[str, tuple[str, ...]] = {}
            following = events[index + 1] if index + 1 < len(events) else None
            if following is not None and following.kind == "inductor_provenance_tracking_node_mappings":
                mapping = _node_mapping(following.payload)
            found.append(read_module(event.payload, event.compile_id or "", graph, mapping))
    return tuple(found)


def _node_mapping(payload: str) -> dict[str, tuple[str, ...]]:
    """Handle of a kernel call → the nodes of the post-grad graph in it; empty where torch gives none."""
    try:
        data = json.loads(payload)
    except ValueError:
        return {}
    return {name: tuple(nodes) for name, nodes in data.get("cppCodeToPost", {}).items()}


def read_module(text: str, compile_id: str, graph: Graph | None, mapping: Mapping[str, tuple[str, ...]]) -> GeneratedModule:
    """Read a generated module; one in another language than Python has no kernels that could be told apart here."""
    identity = _AOT_ID.search(text)
    phase = identity[2] if identity else "inference"
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return GeneratedModule(phase, compile_id, (), (), graph, text)
    sources = dict(_kernel_sources(tree))
    call = next((node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "call"), None)
    if call is None:
        return GeneratedModule(phase, compile_id, (), (), graph, text)
    reader = _CallReader(text.splitlines(), sources, graph, mapping, phase)
    for statement in _statements(call.body):
        reader.statement(statement)
    return GeneratedModule(phase, compile_id, tuple(reader.kernels), tuple(reader.lives()), graph, text)


def _kernel_sources(tree: ast.Module) -> Iterator[tuple[str, tuple[str, str]]]:
    """Name → kind and text of each kernel that the module defines."""
    for statement in tree.body:
        if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call)):
            continue
        made, target = statement.value, statement.targets[0]
        function = ast.unparse(made.func)
        if isinstance(target, ast.Name) and function.startswith("async_compile."):
            texts = [a.value for a in made.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            kind = "triton" if function.endswith(".triton") else "c++"
            yield target.id, (kind, max(texts, key=len, default="").strip("\n"))


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements in the order in which they run, through ``with`` blocks."""
    for statement in body:
        if isinstance(statement, ast.With):
            yield from _statements(statement.body)
        else:
            yield statement


@dataclass
class _Buffer:
    type: TensorType | None
    first: int
    last: int | None = None
    reuses: str | None = None
    root: str = ""
    parts: Mapping[int, TensorType] = field(default_factory=dict)  # of a tuple of tensors

    @property
    def bytes(self) -> int | None:
        """Size; of a tuple that of its parts, None where one is not known."""
        if self.type is not None:
            return self.type.bytes
        sizes = [part.bytes for part in self.parts.values()]
        return None if not sizes or None in sizes else sum(size or 0 for size in sizes)


@dataclass
class _CallReader:
    """Walks through ``call``: which buffers exist at each call of a kernel, and what each call touches."""

    lines: list[str]
    sources: Mapping[str, tuple[str, str]]
    graph: Graph | None
    mapping: Mapping[str, tuple[str, ...]]
    phase: str
    kernels: list[Kernel] = field(default_factory=list)
    buffers: dict[str, _Buffer] = field(default_factory=dict)
    inputs: dict[str, TensorType | None] = field(default_factory=dict)
    returned: set[str] = field(default_factory=set)
    previous_line: int = 0

    def statement(self, statement: ast.stmt) -> None:
        if "get_raw_stream(" in self.lines[statement.lineno - 1]:
            return  # stands between a kernel's comment and its call
        if isinstance(statement, ast.Assign):
            self._assign(statement)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            self._call(statement.value, (), statement.lineno)
        elif isinstance(statement, ast.Delete):
            for target in statement.targets:
                if isinstance(target, ast.Name) and target.id in self.buffers:
                    self.buffers[target.id].last = len(self.kernels) - 1
        elif isinstance(statement, ast.Return) and statement.value is not None:
            self.returned = {part.id for part in ast.walk(statement.value) if isinstance(part, ast.Name)}
        self.previous_line = statement.end_lineno or statement.lineno

    def lives(self) -> Iterator[BufferLife]:
        end = max(len(self.kernels) - 1, 0)
        for name, buffer in self.buffers.items():
            last = end if buffer.last is None or name in self.returned else max(buffer.last, buffer.first)
            yield BufferLife(name, buffer.bytes, buffer.first, last, buffer.reuses)

    def _assign(self, statement: ast.Assign) -> None:
        target, value = statement.targets[0], statement.value
        if isinstance(target, ast.Tuple):  # "primals_1, … = args"
            for element in target.elts:
                if isinstance(element, ast.Name):
                    node = self.graph.by_name.get(element.id) if self.graph else None
                    self.inputs[element.id] = node.type if node else None
            return
        if not isinstance(target, ast.Name):
            return
        if isinstance(value, ast.Name) and value.id in self.buffers:  # "buf1 = buf0; del buf0  # reuse"
            self._alias(target.id, value.id, None, reuse=True)
        elif isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name) and value.value.id in self.buffers:
            whole = self.buffers[value.value.id]  # "buf1 = buf0[0]": a part of a tuple
            index = value.slice.value if isinstance(value.slice, ast.Constant) else None
            part = whole.parts.get(index) if isinstance(index, int) else None
            owner = whole.root or value.value.id
            self.buffers[target.id] = _Buffer(part, len(self.kernels), reuses=owner, root=owner)
        elif isinstance(value, ast.Call):
            function = ast.unparse(value.func)
            if function.startswith("empty_strided"):
                self.buffers[target.id] = _Buffer(_literal_type(value), len(self.kernels), root=target.id)
            elif (
                function == "reinterpret_tensor" and isinstance(value.args[0], ast.Name) and value.args[0].id in self.buffers
            ):
                reuse = "# reuse" in self.lines[statement.lineno - 1]
                self._alias(target.id, value.args[0].id, _shape(value.args[1]), reuse=reuse)
            elif function not in _NO_KERNEL:
                self._call(value, (target.id,), statement.lineno)

    def _alias(self, name: str, of: str, shape: tuple[int | str, ...] | None, *, reuse: bool) -> None:
        before = self.buffers[of]
        kind = TensorType(before.type.dtype, shape) if before.type and shape is not None else before.type
        self.buffers[name] = _Buffer(kind, len(self.kernels), reuses=before.root or of, root=before.root or of)
        if reuse:
            before.last = len(self.kernels) - 1

    def _call(self, call: ast.Call, results: tuple[str, ...], line: int) -> None:
        function = ast.unparse(call.func)
        if function in _NO_KERNEL or function.endswith((".clear", "current_stream")):
            if function == "assert_size_stride" and isinstance(call.args[0], ast.Name):
                self._learn_shape(call.args[0].id, call.args[1])
            return
        name = function.removesuffix(".run")
        kind, source = self.sources.get(name, ("library", ""))
        if kind == "library" and not results and "." not in function:
            return  # a helper of the generated module
        comments = self.lines[self.previous_line : line - 1]
        nodes = self._nodes(name, comments)
        if kind == "library":  # torch also names what its operands were made of
            nodes = self._own_node(_library_op(name), nodes) or nodes
        ops = self._ops(name, nodes, comments)
        for result in results:
            node = self._result_node(_library_op(name), nodes)
            parts = _parts(self.graph, node) if self.graph and node else {}
            self.buffers[result] = _Buffer(node.type if node else None, len(self.kernels), root=result, parts=parts)
        moved = self._bytes(call, results, source)
        places = {(node.file, node.line) for n in nodes if self.graph and (node := self.graph.by_name.get(n)) and node.line}
        self.kernels.append(Kernel(name, kind, self.phase, ops, nodes, moved, tuple(sorted(places)), source))

    def _learn_shape(self, name: str, shape: ast.expr) -> None:
        buffer = self.buffers.get(name)
        if buffer is not None and buffer.type is not None:
            buffer.type = TensorType(buffer.type.dtype, _shape(shape))

    def _nodes(self, name: str, comments: list[str]) -> tuple[str, ...]:
        handles = [found[1] for line in comments if (found := _HANDLE.search(line))]
        for handle in [*handles, *(key for key in self.mapping if key.rpartition(":")[0] == name)]:
            if handle in self.mapping:
                order = {node: index for index, node in enumerate(self.graph.by_name if self.graph else {})}
                return tuple(sorted(self.mapping[handle], key=lambda node: order.get(node, len(order))))
        return ()

    def _own_node(self, op: str, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """The last of ``nodes`` that is an ``op``; none if none is."""
        known = self.graph.by_name if self.graph else {}
        return tuple(node for node in nodes if node in known and known[node].op == op)[-1:]

    def _ops(self, name: str, nodes: tuple[str, ...], comments: list[str]) -> tuple[str, ...]:
        """Of the mapping, else of the comment, else of the name of the kernel, which lists its ops once each."""
        known = self.graph.by_name if self.graph else {}
        if nodes:
            ops = (known[node].op if node in known else node for node in nodes)
            return tuple(op for op in ops if op != "input") or ("copy",)  # of inputs, into another layout
        listed = _SUFFIX.match(name)
        if not listed:  # the comment above a library call also names what was fused into its operands
            return (_library_op(name),)
        for line in comments:
            original = _ORIGINAL.search(line)
            if original and original[1]:
                return tuple(part.strip().partition(".")[2] or part.strip() for part in original[1].split(","))
        return _split_ops(listed[1])

    def _result_node(self, op: str, nodes: tuple[str, ...]) -> Node | None:
        """The node of the graph that the result of a call of ``op`` is: the first that it can be."""
        if self.graph is None:
            return None
        named = [self.graph.by_name[name] for name in nodes if name in self.graph.by_name]
        return next((node for node in named or self.graph.computing if node.op == op), None)

    def _bytes(self, call: ast.Call, results: tuple[str, ...], source: str) -> int | None:
        total = 0
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        touched: list[str] = []
        for argument in arguments:
            part = argument.args[0] if isinstance(argument, ast.Call) and argument.args else argument
            if isinstance(part, ast.Name) and (part.id in self.buffers or part.id in self.inputs) and part.id not in touched:
                touched.append(part.id)
        signature = _SIGNATURE.search(source)  # what is changed in place stands first
        in_place = signature[1].count("in_out_ptr") if signature else 0
        for index, name in enumerate([*touched, *results]):
            given = self.buffers[name] if name in self.buffers else self.inputs[name]
            size = given.bytes if given else None
            if size is None:
                return None
            total += size * (2 if index < in_place else 1)
        return total


def _library_op(name: str) -> str:
    """The op of a kernel that Inductor did not write: "mm" of "extern_kernels.mm" and of "torch.ops.aten.mm.default"."""
    return bare_op(name.removeprefix("torch.ops."))


def _parts(graph: Graph, node: Node) -> dict[int, TensorType]:
    """The tensors that are taken out of a node whose result is a tuple, by index."""
    found: dict[int, TensorType] = {}
    for user in graph.nodes:
        taken = re.fullmatch(rf"{re.escape(node.name)}\[(\d+)\]", user.text)
        if taken and user.type is not None:
            found[int(taken[1])] = user.type
    return found


def _literal_type(call: ast.Call) -> TensorType | None:
    dtype = _DTYPES.get(ast.unparse(call.args[2]).removeprefix("torch.")) if len(call.args) > 2 else None
    return TensorType(dtype, _shape(call.args[0])) if dtype else None


def _shape(expression: ast.expr) -> tuple[int | str, ...]:
    if not isinstance(expression, (ast.Tuple, ast.List)):
        return ("?",)
    return tuple(
        e.value if isinstance(e, ast.Constant) and isinstance(e.value, int) else ast.unparse(e) for e in expression.elts
    )


def _split_ops(text: str) -> tuple[str, ...]:
    """The ops in "mul_sigmoid_backward_sum", which is ambiguous: the longest name that ATen knows is taken."""
    words, found = text.split("_"), []
    while words:
        length = next((n for n in range(len(words), 0, -1) if hasattr(torch.ops.aten, "_".join(words[:n]))), 1)
        name = "_".join(words[:length])
        words = words[length:]
        if name:
            found.append(name)
    return tuple(found)
