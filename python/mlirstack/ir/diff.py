"""Differences between two texts of IR that do not mind renumbered values.

Two lists of lines go in, runs of equal and different lines come out.  One value taken out renumbers all that follow; such
lines count as equal as long as the new names stand for the old ones one to one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

# Names that a printer chooses: values, blocks, aliases of attributes, metadata of LLVM IR.
_NAME = re.compile(r"[%^][\w$.-]+(?:#\d+)?|#(?:map|set|loc)\d*\b|![0-9]+\b")
_CONTEXT = 3


@dataclass(frozen=True)
class Run:
    """Lines ``a[a_begin:a_end]`` became ``b[b_begin:b_end]``: equal but for names, or different."""

    kind: Literal["equal", "changed"]
    a_begin: int
    a_end: int
    b_begin: int
    b_end: int


@dataclass(frozen=True)
class DiffStat:
    """How many lines only the one text has, and only the other."""

    removed: int
    added: int


def compare_lines(a: Sequence[str], b: Sequence[str]) -> list[Run]:
    """The runs that lead from ``a`` to ``b``, in order; all lines of both are in exactly one run."""
    keys_a, keys_b = [_NAME.sub("%", line) for line in a], [_NAME.sub("%", line) for line in b]
    first, last = _common_ends(keys_a, keys_b)
    # What is popular in a long text (a thousand multiply-adds) would be matched with each of its like; autojunk prevents it.
    matcher = difflib.SequenceMatcher(None, keys_a[first : len(a) - last], keys_b[first : len(b) - last])
    blocks = [(0, 0, first)] if first else []
    blocks += [(i + first, j + first, size) for i, j, size in matcher.get_matching_blocks() if size]
    if last:
        blocks.append((len(a) - last, len(b) - last, last))
    return _merged(_runs(a, b, blocks))


def stat(runs: Sequence[Run]) -> DiffStat:
    """Lines removed and added by ``runs``."""
    changed = [run for run in runs if run.kind == "changed"]
    return DiffStat(sum(r.a_end - r.a_begin for r in changed), sum(r.b_end - r.b_begin for r in changed))


def unified(a: Sequence[str], b: Sequence[str], name_a: str, name_b: str, context: int = _CONTEXT) -> Iterator[str]:
    """The lines of a unified diff, without line ends; nothing where the texts are equal but for names."""
    runs = compare_lines(a, b)
    if all(run.kind == "equal" for run in runs):
        return
    yield f"--- {name_a}"
    yield f"+++ {name_b}"
    for group in _hunks(runs, context):
        a_begin, a_end, b_begin, b_end = group[0].a_begin, group[-1].a_end, group[0].b_begin, group[-1].b_end
        yield f"@@ -{a_begin + 1},{a_end - a_begin} +{b_begin + 1},{b_end - b_begin} @@"
        for run in group:
            if run.kind == "equal":
                yield from (f" {line}" for line in b[run.b_begin : run.b_end])
            else:
                yield from (f"-{line}" for line in a[run.a_begin : run.a_end])
                yield from (f"+{line}" for line in b[run.b_begin : run.b_end])


def _common_ends(a: list[str], b: list[str]) -> tuple[int, int]:
    """How many lines are the same at the beginning, and of the rest at the end."""
    shorter = min(len(a), len(b))
    first = next((i for i in range(shorter) if a[i] != b[i]), shorter)
    last = next((i for i in range(shorter - first) if a[-1 - i] != b[-1 - i]), shorter - first)
    return first, last


def _runs(a: Sequence[str], b: Sequence[str], blocks: list[tuple[int, int, int]]) -> Iterator[Run]:
    """Matching blocks, taken apart where a line's names are not those that the names before have become."""
    names = _Renaming()
    at_a = at_b = 0
    for begin_a, begin_b, size in blocks:
        if begin_a > at_a or begin_b > at_b:
            yield Run("changed", at_a, begin_a, at_b, begin_b)
        for k in range(size):
            same = names.agrees(_NAME.findall(a[begin_a + k]), _NAME.findall(b[begin_b + k]))
            yield Run("equal" if same else "changed", begin_a + k, begin_a + k + 1, begin_b + k, begin_b + k + 1)
        at_a, at_b = begin_a + size, begin_b + size
    if at_a < len(a) or at_b < len(b):
        yield Run("changed", at_a, len(a), at_b, len(b))


class _Renaming:
    """Which name of the one text stands for which of the other, as far as lines have told."""

    def __init__(self) -> None:
        self._there: dict[str, str] = {}

    def agrees(self, old: list[str], new: list[str]) -> bool:
        """Do these names, one by one, continue the renaming?  A name that a line defines anew begins again."""
        if not old:
            return True
        # A line "%3 = …" (or a block, or an argument list) gives its first name a meaning; functions reuse names.
        defined = {old[0]: new[0]}
        same = all(self._there.get(o, n) == n for o, n in zip(old[1:], new[1:], strict=True))
        self._there.update({o: n for o, n in zip(old, new, strict=True) if o not in self._there or o in defined})
        return same


def _merged(runs: Iterator[Run]) -> list[Run]:
    """Neighbours of one kind as one run."""
    found: list[Run] = []
    for run in runs:
        if found and found[-1].kind == run.kind:
            found[-1] = Run(run.kind, found[-1].a_begin, run.a_end, found[-1].b_begin, run.b_end)
        else:
            found.append(run)
    return found


def _hunks(runs: list[Run], context: int) -> Iterator[list[Run]]:
    """Groups of changed runs with ``context`` equal lines around them."""
    group: list[Run] = []
    for number, run in enumerate(runs):
        if run.kind == "changed":
            group.append(run)
            continue
        size, is_first, is_last = run.a_end - run.a_begin, number == 0, number == len(runs) - 1
        if is_first:
            group.append(_part(run, size - min(size, context), size))
        elif is_last:
            group.append(_part(run, 0, min(size, context)))
        elif size > 2 * context:
            yield [*group, _part(run, 0, context)]
            group = [_part(run, size - context, size)]
        else:
            group.append(run)
    if any(run.kind == "changed" for run in group):
        yield group


def _part(run: Run, begin: int, end: int) -> Run:
    return Run(run.kind, run.a_begin + begin, run.a_begin + end, run.b_begin + begin, run.b_begin + end)
