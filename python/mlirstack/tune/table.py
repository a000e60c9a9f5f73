"""From measurements to the tuning table: what is worth an entry, for a problem and for its bucket.

Without an entry, the cost model decides.  A schedule gets one where it beats that choice by a margin: differences below it
are noise, and every entry is one more thing that a later, better emitter must live with.
"""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from mlirstack.errors import UsageError
from mlirstack.schedules.cuda.tuned import Entry
from mlirstack.tune.measure import Measured

MARGIN = 0.03
_FEWEST = 2  # problems in a bucket that must agree before others in it are decided by them
FIRST = 0  # number of the candidate that is taken without measurements

Table = dict[str, dict[str, Entry]]  # arch → problem or bucket → entry


def winner(measured: Measured, margin: float = MARGIN) -> int | None:
    """The candidate to use: the first one, unless another is faster by more than ``margin``; None if none is right."""
    if not measured.seconds:
        return None
    best = min(measured.seconds, key=measured.seconds.__getitem__)
    first = measured.seconds.get(FIRST, math.inf)
    return best if measured.seconds[best] < (1 - margin) * first else FIRST


def merge(table: Mapping[str, Mapping[str, Entry]], arch: str, results: Iterable[Measured], margin: float = MARGIN) -> Table:
    """``table`` with what was measured for ``arch``; entries of problems and buckets that were measured anew are replaced.

    A bucket of at least two problems gets the schedule with the least time, as the geometric mean over them, each relative
    to its first choice.  Problems for which that is not the winner get an entry of their own.
    """
    merged = {name: dict(entries) for name, entries in table.items()}
    entries = merged.setdefault(arch, {})
    buckets: dict[str, list[Measured]] = defaultdict(list)
    for measured in results:
        if measured.seconds:
            buckets[measured.problem.bucket].append(measured)
    for bucket, members in buckets.items():
        for key in (bucket, *(measured.problem.key for measured in members)):
            entries.pop(key, None)
        common = _best_of_bucket(members, margin)
        if common is not None:
            entries[bucket] = common
        for measured in members:
            number = winner(measured, margin)
            assert number is not None
            own = measured.problem.candidates[number].choice
            if own != common and (common is not None or number != FIRST):
                entries[measured.problem.key] = own
    if not entries:
        del merged[arch]
    return merged


def write_table(file: Path, table: Table) -> None:
    """Write a table, sorted, in place of an earlier one; :class:`UsageError` where that is not possible."""
    text = json.dumps({arch: dict(sorted(entries.items())) for arch, entries in sorted(table.items())}, indent=1)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        draft.write_text(text + "\n")
        draft.replace(file)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from error


def _best_of_bucket(members: list[Measured], margin: float) -> Entry | None:
    """The schedule that all problems of a bucket have in common and that is fastest; None where nothing is gained."""
    if len({measured.problem.key for measured in members}) < _FEWEST:
        return None
    times: dict[str, list[float]] = defaultdict(list)
    choices: dict[str, Entry] = {}
    for measured in members:
        first = measured.seconds.get(FIRST)
        if first is None:
            return None
        for number, seconds in measured.seconds.items():
            choice = measured.problem.candidates[number].choice
            name = json.dumps(choice, sort_keys=True)
            choices[name] = choice
            times[name].append(math.log(seconds / first))
    means = {name: math.exp(sum(t) / len(t)) for name, t in times.items() if len(t) == len(members)}
    best = min(means, key=means.__getitem__, default=None)
    return choices[best] if best is not None and means[best] < 1 - margin else None
