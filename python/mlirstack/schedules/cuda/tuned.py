"""What was measured: the fastest schedule of a kernel on an architecture, by problem.

``tuned.json`` beside this file ships with the package; files named in the environment variable ``MLIRSTACK_TUNED``
(separated as in PATH) go before it.  ``mlirstack tune`` writes such files.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlirstack.errors import UsageError

if TYPE_CHECKING:  # tables are read and written on machines without MLIR, too
    from mlirstack.schedules.cuda.graph import KernelGraph, Node, Operand

ENVIRONMENT = "MLIRSTACK_TUNED"
SHIPPED = Path(__file__).with_name("tuned.json")

Entry = Mapping[str, Any]  # {"name": emitter, parameter: value, …}


def lookup(graph: KernelGraph, arch: str) -> Entry | None:
    """The entry for this very problem, else for its bucket, else None."""
    for table in _tables(os.environ.get(ENVIRONMENT, "")):
        found = table.get(arch, {})
        for key in (problem(graph), bucket(graph)):
            if key in found:
                return dict(found[key])
    return None


def problem(graph: KernelGraph) -> str:
    """What is computed, in one line: loops, layouts, types and bodies of all ops.

    ``4096x4096x4096 ppr f16[02] f16[12] > f32[01]: extf extf mulf addf`` is a matrix product with a transposed right-hand
    side; the ops of a kernel are separated by semicolons.
    """
    return "; ".join(_describe(node, rounded=False) for node in graph.nodes)


def bucket(graph: KernelGraph) -> str:
    """As :func:`problem`, after "about", every loop of more than 16 iterations rounded up to a power of two."""
    return "about " + "; ".join(_describe(node, rounded=True) for node in graph.nodes)


def _describe(node: Node, *, rounded: bool) -> str:
    if not node.is_structured:
        return node.name
    sizes = "x".join("?" if size is None else str(_round(size) if rounded else size) for size in node.sizes)
    kinds = "".join(kind[0] for kind in node.iterators)
    sources, targets = (" ".join(_operand(o) for o in operands) for operands in (node.inputs, node.outputs))
    body = " ".join(name.partition(".")[2] for name in node.body_ops())
    return f"{sizes} {kinds} {sources} > {targets}: {body}{' (tf32)' if node.allows_tf32 else ''}"


def _operand(operand: Operand) -> str:
    if operand.tensor is None:
        return str(operand.value.type)
    return f"{operand.tensor.element}[{''.join('e' if dim is None else str(dim) for dim in operand.dims)}]"


def _round(size: int) -> int:
    return size if size <= 16 else 1 << (size - 1).bit_length()


def files(paths: str | None = None) -> list[Path]:
    """The tables in the order in which they are asked; ``paths`` as in the environment variable (None: its value)."""
    paths = os.environ.get(ENVIRONMENT, "") if paths is None else paths
    own = [Path(path) for path in paths.split(os.pathsep) if path]
    return [*own, SHIPPED] if SHIPPED.is_file() else own


def read_table(file: Path) -> dict[str, dict[str, Entry]]:
    """``{arch: {problem or bucket: entry}}``; :class:`UsageError` for files that hold anything else."""
    try:
        data = json.loads(file.read_text())
        for entries in data.values():
            for entry in entries.values():
                entry["name"]
    except (OSError, ValueError, AttributeError, TypeError, KeyError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a table of mlirstack tune"
        raise UsageError(f"cannot read the tuning table {file}: {reason}", hint=f"see {ENVIRONMENT}") from error
    return dict(data)


@cache
def _tables(paths: str) -> tuple[Mapping[str, Mapping[str, Entry]], ...]:
    return tuple(read_table(file) for file in files(paths))


def summary(file: Path) -> Iterator[str]:
    """One line per architecture: how many entries of which emitter."""
    for arch, entries in read_table(file).items():
        counts = Counter(str(entry["name"]) for entry in entries.values())
        yield f"{arch}: " + (", ".join(f"{count} {name}" for name, count in counts.most_common()) or "nothing")
