"""Every zoo model through ``torch.compile(backend="mlirstack")``, next to eager; which graphs fall back, and why.

Forward, then, with ``--train``, the backward pass of a weighted sum where one has gradients; with ``--export``, the same
model through torch.export and the same stage table.

    python benchmarks/backend_zoo.py --only mlp,attention --train
    python benchmarks/backend_zoo.py --train --export --json benchmarks/results/backend-zoo-cpu.json
    python benchmarks/backend_zoo.py --train --export --device cuda --jobs 8 --json benchmarks/results/backend-zoo-h200.json
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from result_file import write_results
from rich.progress import Progress
from torch import nn
from torch.utils import _pytree as pytree

import mlirstack as ms
from mlirstack import zoo
from mlirstack.compare.accuracy import Answer, call, compare_answers, moved, reference
from mlirstack.dynamo.backend import clear_graphs, graphs, mlirstack
from mlirstack.errors import MlirstackError
from mlirstack.parallel import each


@dataclass(frozen=True)
class Task:
    """A model, where it runs, whether it is trained, and whether torch.export's way is taken as well."""

    name: str
    device: str
    train: bool
    export: bool


def run_model(task: Task) -> dict[str, Any]:
    """The row of one model; an exception is a row too."""
    warnings.filterwarnings("ignore")
    try:
        return _row(task)
    except Exception as error:  # a row of the table, not the end of the run
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return {"model": task.name, "ok": False, "reason": reason, "graphs": []}


def _row(task: Task) -> dict[str, Any]:
    """Is the answer eager's, and what became of the graphs."""
    model = zoo.get(task.name)
    torch._dynamo.reset()
    clear_graphs()
    # Eager on a CPU, which is compared with, has no TF32; what torch allows by default on a GPU would be used there.
    torch.backends.cudnn.allow_tf32 = False
    # Without it Dynamo leaves recurrent layers to eager, and no back end ever sees them.
    torch._dynamo.config.allow_rnn = True
    expected = reference(model.module, model.inputs)
    module, inputs = copy.deepcopy(model.module).to(task.device), moved(model.inputs, task.device)
    compiled = torch.compile(module, backend=mlirstack)
    started = time.perf_counter()
    accuracy = compare_answers(call(compiled, inputs), expected)
    row: dict[str, Any] = {"model": task.name, "ok": accuracy.ok, "reason": accuracy.reason}
    if task.train:
        row["gradients"], row["gradients_reason"] = _gradients_agree(task)
    if task.export:
        exported = ms.compile(model.module, model.inputs, dynamic_shapes=model.dynamic_shapes, target=task.device)
        row["export"] = compare_answers(call(exported, inputs), expected).ok
    row["seconds"] = round(time.perf_counter() - started, 2)
    row["graphs"] = [
        {"kind": graph.kind, "status": graph.status, "route": graph.route, "reason": graph.reason} for graph in graphs()
    ]
    return row


def _gradients_agree(task: Task) -> tuple[bool | None, str | None]:
    """Are the gradients of parameters and inputs eager's, and if not, why; None where there are none."""
    model = zoo.get(task.name)
    expected = reference(model.module, model.inputs, _gradients)
    if not expected.eager.leaves:
        return None, None
    if not compare_answers(expected.eager, expected).ok:  # too ill-conditioned for eager itself: ours must be as eager's are
        expected = replace(expected, precise=expected.eager, precision="as is")
    before = len(graphs())
    compiled = torch.compile(model.module.to(task.device), backend=mlirstack)
    accuracy = compare_answers(_gradients(compiled, moved(model.inputs, task.device)), expected)
    if {graph.kind for graph in graphs()[before:]} != {"forward", "backward"}:
        return False, "no forward and backward graph reached the back end"
    return accuracy.ok, accuracy.reason


def _gradients(module: nn.Module, inputs: Sequence[Any]) -> Answer:
    """The gradients of a weighted sum of all results, by the names of the parameters and inputs that have any.

    The weights are small integers, exact in every dtype; they are not equal, since sums of what is normalized are constants.
    """
    given, structure = pytree.tree_flatten(copy.deepcopy(tuple(inputs)))
    differentiable = [at for at, leaf in enumerate(given) if isinstance(leaf, torch.Tensor) and _has_gradient(leaf)]
    sources = dict(getattr(module, "_orig_mod", module).named_parameters())
    for at in differentiable:
        sources[f"input {at}"] = given[at].requires_grad_()
        given[at] = given[at].clone()  # a model may write its inputs, but not the leaves of a gradient
    results = pytree.tree_leaves(module(*pytree.tree_unflatten(given, structure)))
    tensors = [result for result in results if isinstance(result, torch.Tensor) and result.requires_grad]
    parts = [torch.view_as_real(tensor) if tensor.is_complex() else tensor for tensor in tensors]
    if parts:
        weights = [
            (torch.arange(part.numel(), device=part.device) % 7 - 3).view(part.shape).to(part.dtype) for part in parts
        ]
        torch.autograd.backward(parts, weights)
    found = {name: source.grad.cpu() for name, source in sources.items() if source.grad is not None}
    return Answer(found, " ".join(found))


def _has_gradient(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _is_right(row: dict[str, Any]) -> bool:
    return row["ok"] and row.get("gradients") is not False and row.get("export") is not False


def _is_compiled(row: dict[str, Any]) -> bool:
    return bool(row["graphs"]) and all(graph["status"] == "compiled" for graph in row["graphs"])


def main() -> int:
    """Run, print what is not compiled or not right, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", help="models whose name has one of these in it, separated by commas")
    parser.add_argument("--train", action="store_true", help="compare gradients as well")
    parser.add_argument("--export", action="store_true", help="compile what torch.export gives as well")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time")
    parser.add_argument("--json", type=Path, help="write the result there")
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else [""]
    names = [name for name in zoo.names() if any(part in name for part in wanted)]
    tasks = [Task(name, options.device, options.train, options.export) for name in names]
    found: dict[int, dict[str, Any]] = {}
    with Progress(disable=not sys.stderr.isatty()) as progress:
        for number, row in progress.track(each(run_model, tasks, options.jobs), total=len(tasks), description="zoo"):
            lost = {"model": names[number], "ok": False, "reason": str(row), "graphs": []}
            found[number] = lost if isinstance(row, MlirstackError) else row
    rows = [found[number] for number in sorted(found)]
    for row in rows:
        fallbacks = [f"{graph['kind']}: {graph['reason']}" for graph in row["graphs"] if graph["status"] == "fallback"]
        fallbacks += [] if row["graphs"] else ["no graph reached the back end"]
        if not _is_right(row) or fallbacks:
            wrong = "" if row["ok"] else f"WRONG: {row['reason']}"
            wrong += f" WRONG GRADIENTS: {row['gradients_reason']}" if row.get("gradients") is False else ""
            wrong += " WRONG BY EXPORT" if row.get("export") is False else ""
            print(f"{row['model']}: {wrong} {'; '.join(fallbacks)}")
    compiled = sum(_is_compiled(row) for row in rows)
    right = sum(_is_right(row) for row in rows)
    print(f"{right} of {len(rows)} right, {compiled} of them without a fallback")
    if options.json:
        write_results(options.json, rows)
    return 0 if right == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
