"""What part of the operations at each level still knows its line of the Torch model, over the whole zoo.

    python benchmarks/provenance.py --targets cpu,cuda:sm_90a --jobs 8 --json benchmarks/results/provenance.json

Each model is lowered down to the LLVM dialect (to NVVM for cuda, to what IREE is given for its targets); the table shows the
stage with the smallest share.  Exit status 1 where a share is below 95 %.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path

from mlirstack.errors import MlirstackError
from mlirstack.frontend.export import export
from mlirstack.lowering import LowerOptions, lower_program
from mlirstack.parallel import each
from mlirstack.report.provenance import Shares
from mlirstack.zoo.registry import HEAVY, get, names

REQUIRED = 0.95
LAST = {"cpu": "llvm", "cuda": "nvvm", "iree-cpu": "program", "iree-cuda": "program"}  # the last module of ours


def shares_of(task: tuple[str, str]) -> dict[str, tuple[int, int]]:
    """``{stage: (known, total)}`` of one model of the zoo for one target."""
    name, target = task
    warnings.filterwarnings("ignore")
    model = get(name)
    program = export(model.module, model.inputs, {}, dynamic_shapes=model.dynamic_shapes, name=name)
    shares = Shares()
    lower_program(program, LowerOptions(target=target, to=LAST[target.partition(":")[0]]), [shares])
    return shares.stages


def _lines_of(results: dict[str, dict[str, dict[str, tuple[int, int]]]]) -> str:
    """JSON, one line a model."""
    targets = []
    for target, models in results.items():
        rows = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(stages)}" for name, stages in models.items())
        targets.append(f"{json.dumps(target)}: {{\n  {rows}\n }}")
    return "{\n " + ",\n ".join(targets) + "\n}\n"


def main() -> int:
    """Run the models that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="models of the zoo (default: all but the heavy ones)")
    parser.add_argument("--targets", default="cpu", help="cpu, cuda:sm_90a, iree-cpu, iree-cuda:sm_90, with commas between")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time")
    parser.add_argument("--json", type=Path, help="write all shares")
    options = parser.parse_args()
    tasks = [
        (name, target)
        for target in options.targets.split(",")
        for name in options.models or [name for name in names() if name not in HEAVY]
    ]
    found: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}
    below = 0
    for number, shares in each(shares_of, tasks, options.jobs):
        name, target = tasks[number]
        if isinstance(shares, MlirstackError):
            print(f"{target:12} {name:32} not lowered: {shares.message.splitlines()[0]}", flush=True)
            continue
        found[tasks[number]] = shares
        stage, (known, total) = min(shares.items(), key=lambda entry: entry[1][0] / max(entry[1][1], 1))
        below += known / max(total, 1) < REQUIRED
        print(f"{target:12} {name:32} {known / max(total, 1):7.1%}  at {stage} ({known} of {total})", flush=True)
    results: dict[str, dict[str, dict[str, tuple[int, int]]]] = {}
    for name, target in tasks:
        if (name, target) in found:
            results.setdefault(target, {})[name] = found[name, target]
    if options.json:
        options.json.write_text(_lines_of(results))
    print(f"{below} below {REQUIRED:.0%}")
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
