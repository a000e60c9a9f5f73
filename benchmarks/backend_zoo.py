"""Every zoo model through ``torch.compile(backend="mlirstack")``, next to eager; which graphs fall back, and why.

Forward with gradients on, then, with ``--train``, the backward pass of a sum of squares where a parameter has one.

    python benchmarks/backend_zoo.py --json benchmarks/results/backend-zoo.json
    python benchmarks/backend_zoo.py --only mlp,attention --train
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress
from torch import nn
from torch.utils import _pytree as pytree

from mlirstack import zoo
from mlirstack.compare.accuracy import call, compare_answers, reference
from mlirstack.dynamo.backend import clear_graphs, graphs, mlirstack


def run_model(name: str, *, train: bool) -> dict[str, Any]:
    """One model: is the answer eager's, and what became of its graphs."""
    model = zoo.get(name)
    torch._dynamo.reset()
    clear_graphs()
    expected = reference(model.module, model.inputs)
    compiled = torch.compile(copy.deepcopy(model.module), backend=mlirstack)
    started = time.perf_counter()
    accuracy = compare_answers(call(compiled, copy.deepcopy(model.inputs)), expected)
    row: dict[str, Any] = {"model": name, "ok": accuracy.ok, "reason": accuracy.reason}
    if train:
        row["gradients"] = _gradients_agree(model.module, model.inputs)
    row["seconds"] = round(time.perf_counter() - started, 2)
    row["graphs"] = [
        {"kind": graph.kind, "status": graph.status, "route": graph.route, "reason": graph.reason} for graph in graphs()
    ]
    return row


def _gradients_agree(module: nn.Module, inputs: tuple[Any, ...]) -> bool | None:
    """Are the gradients of the parameters eager's?  None where there are none."""
    ours, eager = copy.deepcopy(module), copy.deepcopy(module)
    gradients = []
    for called, model in ((torch.compile(ours, backend=mlirstack), ours), (eager, eager)):
        leaves = pytree.tree_leaves(called(*copy.deepcopy(inputs)))
        losses = [leaf.float().square().sum() for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        if not losses:
            return None
        torch.stack(losses).sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    return len(gradients[0]) == len(gradients[1]) and all(
        _relative_error(got, wanted) < 1e-2 * (1 if wanted.dtype.itemsize < 4 else 1e-2)
        for got, wanted in zip(*gradients, strict=True)
    )


def _relative_error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    precise = wanted.double()
    return float((got.double() - precise).norm() / precise.norm().clamp_min(1e-12))


def main() -> int:
    """Run, print what is not compiled or not right, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", help="models whose name has one of these in it, separated by commas")
    parser.add_argument("--train", action="store_true", help="compare gradients as well")
    parser.add_argument("--json", type=Path, help="write the result there")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    wanted = options.only.split(",") if options.only else [""]
    names = [name for name in zoo.names() if any(part in name for part in wanted)]
    rows = []
    with Progress(disable=not sys.stderr.isatty()) as progress:
        for name in progress.track(names, description="zoo"):
            try:
                rows.append(run_model(name, train=options.train))
            except Exception as error:  # a row of the table, not the end of the run
                rows.append(
                    {"model": name, "ok": False, "reason": f"{type(error).__name__}: {error}".splitlines()[0], "graphs": []}
                )
    for row in rows:
        fallbacks = [f"{graph['kind']}: {graph['reason']}" for graph in row["graphs"] if graph["status"] == "fallback"]
        if not row["ok"] or row.get("gradients") is False or fallbacks:
            wrong = "" if row["ok"] else f"WRONG: {row['reason']}"
            wrong += " WRONG GRADIENTS" if row.get("gradients") is False else ""
            print(f"{row['model']}: {wrong} {'; '.join(fallbacks)}")
    compiled = sum(all(graph["status"] == "compiled" for graph in row["graphs"]) for row in rows)
    right = sum(row["ok"] and row.get("gradients") is not False for row in rows)
    print(f"{right} of {len(rows)} right, {compiled} of them without a fallback")
    if options.json:
        options.json.write_text(
            json.dumps({"torch": torch.__version__, "train": options.train, "models": rows}, indent=1) + "\n"
        )
    return 0 if right == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
