"""``mlirstack fuzz``: random graphs on targets against eager; finds are made small and written down."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from mlirstack.cli.common import console, error_console, run_command, write_json
from mlirstack.errors import TargetUnavailableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlirstack.fuzz.campaign import Campaign
    from mlirstack.fuzz.finds import Find
    from mlirstack.fuzz.results import Numbered

EXAMPLES = """
Examples:

  mlirstack fuzz --graphs 200 --seed 1

  mlirstack fuzz --graphs 10000 --jobs 8 --targets cpu,iree-cpu --out fuzz/ --json fuzz.json

  mlirstack fuzz --replay fuzz/finds/17-cpu/graph.json
"""


def fuzz(
    graphs: Annotated[int, typer.Option("--graphs", min=1, help="how many random graphs")] = 100,
    seed: Annotated[int, typer.Option("--seed", help="graphs are the same for the same seed")] = 0,
    targets: Annotated[str, typer.Option("--targets", help="compared with eager: cpu, iree-cpu")] = "cpu",
    group: Annotated[int, typer.Option("--group", min=1, help="graphs compiled as one module")] = 16,
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="seconds that one step may take")] = 120.0,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="groups at a time, each in a process of one thread")] = 1,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0, help="begin no more groups after that long")] = None,
    reproducers: Annotated[int, typer.Option("--reproducers", min=0, help="finds that are made small at most")] = 20,
    shrink_seconds: Annotated[float, typer.Option("--shrink-seconds", min=0, help="to make one find small")] = 60.0,
    out: Annotated[Path, typer.Option("--out", help="results and finds; an earlier run there is gone on with")] = Path(
        "fuzz"
    ),
    replay: Annotated[Path | None, typer.Option("--replay", help="examine this graph.json instead")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the result as JSON ('-': stdout)")] = None,
) -> None:
    """Compare random graphs of 3 to 25 operations with eager; exit status 1 where an answer is wrong or a process died."""

    def body() -> int:
        from mlirstack.fuzz.campaign import Campaign
        from mlirstack.fuzz.finds import write_finds

        names = _available(targets)
        if replay is not None:
            return _replay(replay, names, timeout, json_file)
        campaign = Campaign(graphs, seed, names, group, timeout, jobs, seconds)
        found = _run(campaign, out)
        finds = write_finds(found, campaign, out, seconds=shrink_seconds, most=reproducers)
        if str(json_file) != "-":
            _print(found, finds)
        write_json(json_file, _as_json(campaign, found, finds))
        return 1 if finds else 0

    run_command(body)


def _available(targets: str) -> tuple[str, ...]:
    from mlirstack.targets.registry import create_target

    names = tuple(name for name in targets.split(",") if name)
    if not names:
        raise UsageError("no target given", hint="for example --targets cpu,iree-cpu")
    for name in names:
        reason = create_target(name).available()
        if reason:
            raise TargetUnavailableError(f"target '{name}': {reason}")
    return names


def _run(campaign: Campaign, out: Path) -> list[Numbered]:
    """All results, with a bar on a terminal."""
    from mlirstack.fuzz.campaign import run

    found: list[Numbered] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=error_console, disable=not error_console.is_terminal) as progress:
        bar = progress.add_task("graphs", total=campaign.graphs * len(campaign.targets))
        for results in run(campaign, out):
            found += results
            finds = sum(one.result.is_find for one in found)
            progress.update(bar, completed=len(found), description=f"graphs ({finds} finds)" if finds else "graphs")
    return found


def _replay(file: Path, targets: Sequence[str], timeout: float, json_file: Path | None) -> int:
    from mlirstack.fuzz.examiner import Examiner
    from mlirstack.fuzz.reproducer import read_spec

    spec = read_spec(file)
    with Examiner(timeout) as examiner:
        results = {target: examiner.results([spec], target)[0] for target in targets}
    if str(json_file) != "-":
        console.print(spec.text(), markup=False, highlight=False)
        for target, result in results.items():
            console.print(f"{target}: {result.status}{f': {result.reason}' if result.reason else ''}", markup=False)
    write_json(json_file, {target: {"status": r.status, "reason": r.reason} for target, r in results.items()})
    return 1 if any(result.is_find for result in results.values()) else 0


def _print(found: Sequence[Numbered], finds: Sequence[Find]) -> None:
    from mlirstack.fuzz.results import STATUSES, counts

    table = Table("target", "graphs", *STATUSES, title="random graphs against eager", title_justify="left")
    for target, by_status in counts(found).items():
        table.add_row(target, str(sum(by_status.values())), *(str(by_status[status]) for status in STATUSES))
    console.print(table)
    for find in finds:
        line = f"{find.reproducer or f'graph {find.number} on {find.target}'}: {find.status}: {find.reason}"
        console.print(line, markup=False, highlight=False)


def _as_json(campaign: Campaign, found: Sequence[Numbered], finds: Sequence[Find]) -> dict[str, Any]:
    from mlirstack.fuzz.results import counts
    from mlirstack.versions import versions

    undecided = [one for one in found if one.result.status == "ok" and one.result.decided < 1]
    refusals = Counter(one.result.reason for one in found if one.result.status == "refused")
    return {
        "graphs": campaign.graphs,
        "seed": campaign.seed,
        "group": campaign.group,
        "counts": counts(found),
        "partly_decided": len(undecided),
        "refusals": dict(refusals.most_common()),
        "finds": [asdict(find) for find in finds],
        "versions": versions(),
    }
