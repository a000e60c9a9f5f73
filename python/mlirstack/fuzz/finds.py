"""The finds of a run, made small and written down: of a thousand that fail alike a few are enough.

Finds of different kinds (status and reason, numbers left out) come first, and as many at a time as the run had jobs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mlirstack.fuzz.campaign import Campaign
from mlirstack.fuzz.examiner import Examiner
from mlirstack.fuzz.generate import graph_of
from mlirstack.fuzz.reproducer import MODEL, STAGES, write_reproducer
from mlirstack.fuzz.results import Numbered
from mlirstack.fuzz.shrink import shrink


@dataclass(frozen=True)
class Find:
    """What is to be mended; ``reproducer`` is a model reference, None where others were enough."""

    number: int
    target: str
    status: str
    reason: str | None
    reproducer: str | None


def write_finds(found: Sequence[Numbered], campaign: Campaign, out: Path, *, seconds: float, most: int) -> list[Find]:
    """All finds of ``found``, ``most`` of them with a reproducer below ``out``, made small in ``seconds`` each.

    What an earlier run has written is kept.
    """
    finds = [one for one in found if one.result.is_find]
    chosen = choose(finds, most)
    with ThreadPoolExecutor(campaign.jobs) as pool:
        models = dict(zip(chosen, pool.map(lambda one: _write(one, campaign, out, seconds), chosen), strict=True))
    return [Find(f.number, f.target, f.result.status, f.result.reason, models.get(f)) for f in finds]


def choose(finds: Sequence[Numbered], most: int) -> list[Numbered]:
    """``most`` of ``finds``: the first of each kind, then the second of each, and so on."""
    ranked = []
    seen: defaultdict[tuple[str, ...], int] = defaultdict(int)
    for find in finds:
        kind = (find.target, find.result.status, re.sub(r"\d[\d.e+-]*", "#", find.result.reason or ""))
        ranked.append((seen[kind], find.number, find))
        seen[kind] += 1
    return [find for _, _, find in sorted(ranked, key=lambda entry: entry[:2])[:most]]


def _write(one: Numbered, campaign: Campaign, out: Path, seconds: float) -> str:
    directory = out / "finds" / f"{one.number}-{one.target}"
    if not (directory / MODEL).exists():
        with Examiner(campaign.timeout) as examiner:
            spec = graph_of(campaign.seed, one.number)
            small = shrink(spec, one.result, lambda spec: examiner.results([spec], one.target)[0], seconds=seconds)
            title = f"Graph {one.number} of seed {campaign.seed} on {one.target}, made small."
            write_reproducer(directory, small.spec, small.result, one.target, title)
            examiner.results([small.spec], one.target, dump=directory / STAGES)
    return str(directory / MODEL)
