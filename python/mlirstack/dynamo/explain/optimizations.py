"""Four graph optimisations made visible and measured: fusion, constant folding, dead code, memory planning.

What comes in are the graphs and the generated modules of a trace; what was done is what differs between two graphs of the
same compilation, so that it holds for whatever passes a version of torch has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mlirstack.dynamo.explain.graphs import Graph, Node
from mlirstack.dynamo.explain.kernels import BufferLife, GeneratedModule

_RANDOM = ("rand", "bernoulli", "dropout", "multinomial", "normal", "inductor_seed", "philox")


@dataclass(frozen=True)
class Fusion:
    """Kernels, and bytes that they move, if each op were a kernel, and as they are; None: a size is not known."""

    kernels_without: int
    kernels_with: int
    bytes_without: int | None
    bytes_with: int | None


@dataclass(frozen=True)
class GoneNode:
    """A node that is in a graph and not in what became of it, and why: dead, folded, no-op, duplicate or rewritten."""

    name: str
    op: str
    why: str
    file: str
    line: int
    bytes: int | None


@dataclass(frozen=True)
class ConstantFolding:
    """``folded``: nodes that were computed at compile time; ``kept``: nodes of constants alone that still run;
    ``parameters_only``: nodes that freezing the parameters would fold, too."""

    folded: tuple[GoneNode, ...]
    kept: int
    parameters_only: int


@dataclass(frozen=True)
class DeadCode:
    """``unused``: the user's own ops whose results nobody reads; ``gone``: what else fell away between two graphs."""

    nodes_before: int
    nodes_after: int
    unused: tuple[GoneNode, ...]
    gone: tuple[GoneNode, ...]


@dataclass(frozen=True)
class Memory:
    """Bytes of the buffers that the program makes for itself: all of them at once (``without``), and the peak with memory
    that is given back and taken again (``with_reuse``); ``lives`` are the buffers, in calls of kernels."""

    without: int | None
    with_reuse: int | None
    calls: int
    lives: tuple[BufferLife, ...]


def fusion_of(modules: Sequence[GeneratedModule]) -> Fusion:
    """Over all modules."""
    graphs = [module.graph for module in modules if module.graph is not None]
    without = [_moved(graph, node) for graph in graphs for node in _running(graph)]
    kernels = [kernel for module in modules for kernel in module.kernels]
    return Fusion(len(without), len(kernels), _sum(without), _sum(kernel.bytes for kernel in kernels))


def _running(graph: Graph) -> list[Node]:
    """The nodes that would be a kernel each: what computes and is used."""
    return [node for node in graph.computing if graph.users[node.name] or node.writes]


def _moved(graph: Graph, node: Node) -> int | None:
    return _sum([*(_size(graph, graph.by_name[name]) for name in node.operands), _size(graph, node)])


def _size(graph: Graph, node: Node) -> int | None:
    """Bytes of a node's tensor, or of the tensors that are taken out of the tuple that it is."""
    if node.type is not None:
        return node.type.bytes
    parts = [user for user in graph.nodes if user.op == "getitem" and node.name in user.operands]
    return (
        _sum(part.type.bytes if part.type else None for part in parts) if parts else (0 if node.op == "sym_size" else None)
    )


def constant_folding(before: Graph, after: Sequence[Graph], parameters: frozenset[str]) -> ConstantFolding:
    """``parameters``: the names of the inputs of ``before`` that are parameters or buffers of the model."""
    left = {node.name for graph in after for node in graph.nodes}
    constant = _closed(before, frozenset())
    frozen = [name for name in _closed(before, parameters) if name not in constant]
    computed = [before.by_name[name] for name in constant if before.by_name[name].operands]
    folded = tuple(_gone(node, "folded") for node in computed if node.name not in left)
    return ConstantFolding(
        folded,
        sum(1 for node in computed if node.name in left and not node.is_view),
        sum(1 for name in frozen if not before.by_name[name].is_view),
    )


def _closed(graph: Graph, known: frozenset[str]) -> dict[str, None]:
    """The nodes that depend on nothing but ``known`` inputs, in order; what draws random numbers is no constant."""
    found: dict[str, None] = {}
    for node in graph.calls:
        random = any(word in node.op for word in _RANDOM)
        if not random and not node.writes and all(name in found or name in known for name in node.operands):
            found[node.name] = None
    return found


def dead_code(captured: Graph, before: Graph, after: Sequence[Graph]) -> DeadCode:
    """``captured`` is Dynamo's graph, ``before`` the decomposed (or joint) one, ``after`` what was compiled."""
    unused = tuple(_gone(captured.by_name[name], "dead") for name in _dead(captured) if captured.by_name[name].op != "alias")
    left = {node.name for graph in after for node in graph.nodes}
    dead, constant = set(_dead(before)), _closed(before, frozenset())
    seen: dict[str, str] = {}
    gone = []
    for node in before.calls:
        first = seen.setdefault(node.text, node.name)
        if node.name in left:
            continue
        if node.name in dead:
            why = "dead"
        elif node.name in constant:
            why = "folded"
        elif node.is_view:
            why = "no-op"
        else:
            why = "duplicate" if first != node.name else "rewritten"
        gone.append(_gone(node, why))
    return DeadCode(len(before.calls), sum(len(graph.calls) for graph in after), unused, tuple(gone))


def _dead(graph: Graph) -> list[str]:
    """The nodes from which no way leads to an output or to a write."""
    live = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node.name in live or node.writes:
            live.add(node.name)
            live.update(node.operands)
    return [node.name for node in graph.calls if node.name not in live]


def _gone(node: Node, why: str) -> GoneNode:
    return GoneNode(node.name, node.op, why, node.file, node.line, node.type.bytes if node.type else None)


def memory_of(module: GeneratedModule) -> Memory:
    """The buffers of one generated module.  A buffer that takes over another's memory counts once with reuse."""
    calls = max(len(module.kernels), 1)
    if any(life.bytes is None for life in module.buffers):
        return Memory(None, None, calls, module.buffers)
    peak = 0
    for call in range(calls):
        alive: dict[str, int] = {}
        for life in module.buffers:
            if life.first <= call <= life.last:
                owner = life.reuses or life.name
                alive[owner] = max(alive.get(owner, 0), life.bytes or 0)
        peak = max(peak, sum(alive.values()))
    views = {life.name for life in module.buffers if life.reuses and any(_overlap(life, o) for o in module.buffers)}
    return Memory(sum(life.bytes or 0 for life in module.buffers if life.name not in views), peak, calls, module.buffers)


def _overlap(life: BufferLife, other: BufferLife) -> bool:
    """Whether ``life`` looks at memory of ``other`` that is still in use: then it is a view, and no buffer of its own."""
    return other.name == life.reuses and other.last >= life.first


def parameters_of(captured: Graph, before: Graph) -> frozenset[str]:
    """The inputs of ``before`` that are the model's parameters and buffers; none where the two graphs' inputs differ."""
    given = [node for node in captured.nodes if node.is_input]
    inner = [node for node in before.nodes if node.is_input and not node.name.startswith("tangents")]
    if len(given) != len(inner):
        return frozenset()
    marks = ("_parameters_", "_buffers_")
    return frozenset(i.name for g, i in zip(given, inner, strict=True) if any(mark in g.name for mark in marks))


def _sum(sizes: Iterable[int | None]) -> int | None:
    total = 0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total
