"""Checks of a model that its sizes and numbers hold what it was captured for, kept as checks at run time.

``torch._check`` of a number that is read from a tensor becomes ``aten._assert_scalar``, which nothing reads.  Of sizes it
becomes a guard of the capture, and so does a branch of ``forward`` on how two sizes compare: the other branch is not in the
graph.  Ranges of one dimension, and equal or derived ones, are in the signature; other guards are written into the graph.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch import fx
from torch.export import ExportedProgram
from torch.utils._sympy.value_ranges import bound_sympy

from mlirstack.errors import UnsupportedError
from mlirstack.frontend.graph import node_source, placeholders

aten = torch.ops.aten

_CHECK = aten._assert_scalar.default
_OF_TENSORS = {aten._assert_async.default: 1, aten._assert_async.msg: 2}  # and how many arguments they have
_OF_ALL = {aten._is_all_true.default: aten.all.default, aten._is_any_true.default: aten.any.default}  # as checks write them
_READS = (aten.item.default, aten._local_scalar_dense.default)

_RELATIONS: dict[Any, Callable[..., Any]] = {
    sympy.Le: operator.le, sympy.Lt: operator.lt, sympy.Ge: operator.ge, sympy.Gt: operator.gt, sympy.Eq: operator.eq,
    sympy.Ne: operator.ne,
}  # fmt: skip


def is_check(node: fx.Node) -> bool:
    """Is ``node`` there to fail at run time?"""
    return node.target is _CHECK


def remove_dead_nodes(graph: fx.Graph) -> None:
    """Remove all that does not reach the output or a check: unused nodes, and what export adds.

    That compares dtypes, devices and symbolic sizes, which the signature holds callers to.
    """
    graph.eliminate_dead_code(is_impure_node=lambda node: node.op in ("placeholder", "output") or is_check(node))


def keep_checks_of_tensors(module: fx.GraphModule) -> None:
    """Write ``_assert_async``, which a decomposition leaves out, as a check of the number that is read, in place, and tests
    of all elements as ATen's."""
    for node in [node for node in module.graph.nodes if node.target in _OF_TENSORS]:
        message = node.args[1] if _OF_TENSORS[node.target] == len(node.args) > 1 else "every element is true"
        with module.graph.inserting_before(node):
            number = module.graph.call_function(aten.item.default, (node.args[0],))
            module.graph.call_function(_CHECK, (number, message))
        module.graph.erase_node(node)
    for node in module.graph.nodes:
        node.target = _OF_ALL.get(node.target, node.target)
    module.recompile()


class Guards:
    """How the sizes of ``program`` must compare, beyond what its signature holds callers to."""

    def __init__(self, program: ExportedProgram) -> None:
        self._held: list[Any] = []
        for size, _, _ in _sizes(program.graph):
            environment = size.node.shape_env
            found = (environment.replace(guard.expr) for guard in environment.guards)
            self._held = [guard for guard in dict.fromkeys(found) if _is_relation(guard, environment)]
            break

    def write(self, graph: fx.Graph) -> None:
        """Check them in ``graph``, that of the decomposed program; :class:`UnsupportedError` where one cannot be said."""
        known = {size.node.expr: (node, axis, size) for size, node, axis in reversed(_sizes(graph))}
        if not self._held:
            return
        first = next(node for node in graph.nodes if node.op != "placeholder")
        with graph.inserting_before(first):
            for guard in self._held:
                names = {
                    s: sympy.Symbol(f"{known[s][0].name}.shape[{known[s][1]}]") for s in guard.free_symbols if s in known
                }
                try:
                    condition = _Writer(graph, known).node(guard)
                except (KeyError, NotImplementedError) as error:
                    raise UnsupportedError(
                        f"the model was captured for sizes of which {guard.subs(names)}, which cannot be checked at run time"
                    ) from error
                graph.call_function(_CHECK, (condition, f"sizes are such that {guard.subs(names)}"))


def name_checks(graph: fx.Graph) -> None:
    """Write the messages of torch in terms of the graph and of the user's line, in place.

    Left out is what torch notes of the number of elements that an operation found (``nonzero``), which no one reads, and of
    where in memory a slice begins.
    """
    for node in [node for node in graph.nodes if is_check(node)]:
        sources = _sources(node)
        if any(source.target is aten.sym_storage_offset.default for source in sources):
            graph.erase_node(node)
            continue
        found = re.search(r"expression (.*) on node '", str(node.args[1]))
        if found is None:
            continue
        text, lines, reads = found[1], [], [source for source in sources if source.target in _READS]
        if not reads:
            graph.erase_node(node)
            continue
        for read in reads:
            for symbol in _symbols(read):
                text = re.sub(rf"\b{symbol}\b", f"{read.args[0].name}.item()", text)  # type: ignore[union-attr]
            lines.append(_line(read))
        known = next((line for line in lines if line), None)
        node.args = (node.args[0], f"{text}{f' (a number read at {known})' if known else ''}")


def _sizes(graph: fx.Graph) -> list[tuple[Any, fx.Node, int]]:
    """Symbolic sizes of the inputs: size, input, dimension."""
    found: list[tuple[Any, fx.Node, int]] = []
    for node in placeholders(graph):
        value = node.meta.get("val")
        for axis, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if isinstance(size, torch.SymInt):
                found.append((size, node, axis))
    return found


def _is_relation(guard: Any, environment: Any) -> bool:
    """Does ``guard`` compare several sizes, and not in a way that follows from the range of each?"""
    if len(getattr(guard, "free_symbols", ())) < 2 or _is_of_small_sizes(guard):
        return False
    # Not by what the environment knows: that is the guard itself.
    ranges = {
        symbol: environment.var_to_range[symbol] for symbol in guard.free_symbols if symbol in environment.var_to_range
    }
    bounds = bound_sympy(guard, ranges)
    return not (bounds.is_singleton() and bounds.lower == sympy.true)


def _is_of_small_sizes(guard: Any) -> bool:
    """Does ``guard`` say that a size is none of 0 and 1?  Torch takes that for granted; what is computed for other
    sizes holds for these."""
    larger = (sympy.Ge, sympy.Gt, sympy.Ne), (sympy.Le, sympy.Lt, sympy.Ne)
    for size, number, kinds in zip(guard.args, reversed(guard.args), larger, strict=False):
        if type(guard) in kinds and number.is_Integer and 0 <= number <= 2:
            return not any(term.free_symbols and term.as_coeff_Mul()[0] < 0 for term in sympy.Add.make_args(size))
    return False


class _Writer:
    """Writes sympy's expressions of sizes as nodes at the insertion point of a graph."""

    def __init__(self, graph: fx.Graph, sizes: dict[Any, tuple[fx.Node, int, Any]]) -> None:
        self._graph, self._sizes = graph, sizes

    def node(self, expression: Any) -> Any:
        """A node, or a number; KeyError or NotImplementedError where there is none."""
        if expression.is_Integer:
            return int(expression)
        if expression.is_Symbol:
            node, axis, size = self._sizes[expression]
            call = self._graph.call_function(aten.sym_size.int, (node, axis))
            call.meta["val"] = size
            return call
        if type(expression) in _RELATIONS:
            return self._call(_RELATIONS[type(expression)], [self.node(part) for part in expression.args])
        parts: Iterable[Any] = expression.args
        if expression.is_Add or expression.is_Mul:
            return self._folded(operator.add if expression.is_Add else operator.mul, [self.node(part) for part in parts])
        if expression.is_Pow and expression.exp.is_Integer and expression.exp > 0:
            return self._folded(operator.mul, [self.node(expression.base)] * int(expression.exp))
        names = {"FloorDiv": operator.floordiv, "Mod": operator.mod, "PythonMod": operator.mod}
        if type(expression).__name__ in names:
            return self._call(names[type(expression).__name__], [self.node(part) for part in parts])
        raise NotImplementedError(type(expression).__name__)

    def _folded(self, target: Callable[..., Any], parts: list[Any]) -> Any:
        result = parts[0]
        for part in parts[1:]:
            result = self._call(target, [result, part])
        return result

    def _call(self, target: Callable[..., Any], parts: list[Any]) -> fx.Node:
        call = self._graph.call_function(target, tuple(parts))
        call.meta["val"] = target(*(part.meta["val"] if isinstance(part, fx.Node) else part for part in parts))
        return call


def _sources(node: fx.Node) -> list[fx.Node]:
    """``node`` and what it depends on, up to readings of numbers."""
    pending, found = [node], {node: None}
    while pending:
        current = pending.pop()
        new = [] if current.target in _READS else [operand for operand in current.all_input_nodes if operand not in found]
        found |= dict.fromkeys(new)
        pending += new
    return list(found)


def _symbols(read: fx.Node) -> list[str]:
    value = read.meta.get("val")
    expression = value.node.expr if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) else None
    return [] if expression is None else [str(symbol) for symbol in expression.free_symbols]


def _line(node: fx.Node) -> str | None:
    """The user's line of ``node``, or of what it is computed from."""
    for candidate in (node, *node.all_input_nodes):
        source = node_source(candidate)
        if source is not None:
            return str(source)
    return None
