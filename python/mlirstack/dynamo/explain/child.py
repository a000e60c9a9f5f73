"""``explain`` in a process of its own (``python -m mlirstack.dynamo.explain.child``): compiling may crash or hang.

A question is a :class:`Request` as JSON, an answer the report as JSON, as text for the terminal, and as a page.
"""

from __future__ import annotations

import io
import os
from dataclasses import replace
from typing import Any

from rich.console import Console

from mlirstack.dynamo.explain.explain import explain
from mlirstack.dynamo.explain.request import Request, parse_shapes
from mlirstack.dynamo.explain.terminal import print_explanation
from mlirstack.errors import MlirstackError, UsageError
from mlirstack.frontend.onnx.source import OnnxModule
from mlirstack.frontend.program import Program
from mlirstack.frontend.references import ModelSource, load
from mlirstack.supervised import Tell, serve


def answer(question: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """The report; an error of mlirstack's is an answer, too: the process goes on."""
    try:
        return _report(Request(**question), tell)
    except MlirstackError as error:
        return {"failed": {"message": error.message, "hint": error.hint, "exit_status": error.exit_status}}


def _report(request: Request, tell: Tell) -> dict[str, Any]:
    tell("loading the model")
    source = _load(request, request.model)
    other = _load(request, request.after) if request.after else None
    found = explain(
        source.eager,
        *source.inputs,
        kwargs=source.kwargs,
        name=source.name,
        backward=request.backward,
        threads=request.threads,
        shapes=parse_shapes(request.shapes),
        after=(other.eager, other.inputs) if other else None,
        tell=tell,
    )
    if request.triton:
        tell("generating Triton code")
        from mlirstack.dynamo.explain.triton_code import generate

        found = replace(found, triton=generate(request.model, seed=request.seed, dtype=request.dtype))
    output = io.StringIO()
    console = Console(file=output, width=request.width, force_terminal=request.colour, no_color=not request.colour)
    print_explanation(found, console, sources=request.sources)
    page = found.to_html() if request.html else ""
    return {"json": found.to_json(), "text": output.getvalue(), "html": page, "compiles": not found.error}


def _load(request: Request, reference: str) -> ModelSource:
    source = load(reference, seed=request.seed, dtype=request.dtype)
    if isinstance(source, Program):
        raise UsageError(f"{reference} is MLIR, which torch.compile does not see", hint="explain needs a torch model")
    if isinstance(source.model, OnnxModule):
        raise UsageError(f"{reference} is ONNX, which torch.compile does not see", hint="explain needs a torch model")
    return source


if __name__ == "__main__":
    if not os.environ.get("MLIRSTACK_WORKER_STDERR"):  # what the model prints, and torch's logs, are not the report
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    serve(answer)
