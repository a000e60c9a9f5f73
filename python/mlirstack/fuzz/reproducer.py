"""A failing graph as files for people: a Python model that every command takes, its spec, and the stages of its lowering."""

from __future__ import annotations

from pathlib import Path

from mlirstack.errors import UsageError
from mlirstack.fuzz.build import build
from mlirstack.fuzz.results import Result
from mlirstack.fuzz.spec import GraphSpec, from_json, to_json

MODEL, SPEC, STAGES = "model.py", "graph.json", "stages"

_TEMPLATE = '''"""{title}

{reason}

To see it: mlirstack compare {model} --targets {target}
"""

import torch
from torch import device, inf, nan  # noqa: F401

from mlirstack.fuzz.spec import InputSpec
from mlirstack.fuzz.values import tensor_of

INPUTS = [
{inputs}
]
PARAMETERS = [
{parameters}
]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for spec in PARAMETERS:
            self.register_buffer(spec.name, tensor_of(spec))

{forward}


def get_init_inputs():
    return []


def get_inputs():
    return [tensor_of(spec) for spec in INPUTS]
'''


def write_reproducer(directory: Path, spec: GraphSpec, result: Result, target: str, title: str) -> Path:
    """Write ``model.py`` (the graph as Torch code, inputs made from seeds) and ``graph.json``; returns the model's path."""
    directory.mkdir(parents=True, exist_ok=True)
    module = build([spec]).module
    code = module.code.strip("\n").replace("torch.functional.", "torch.")
    model = directory / MODEL
    text = _TEMPLATE.format(
        title=title,
        reason=f"{result.status}: {result.reason}".replace("\\", "/").replace('"""', "'''"),
        model=MODEL,
        target=target,
        inputs="\n".join(f"    {value!r}," for value in spec.inputs if not value.parameter),
        parameters="\n".join(f"    {value!r}," for value in spec.inputs if value.parameter),
        forward="\n".join(f"    {line}" if line.strip() else "" for line in code.splitlines()),
    )
    model.write_text(text)
    (directory / SPEC).write_text(to_json(spec) + "\n")
    return model


def read_spec(file: Path) -> GraphSpec:
    """The graph of a ``graph.json``; :class:`UsageError` where it is none."""
    try:
        return from_json(file.read_text())
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{file} holds no graph ({error})", hint="give a graph.json that mlirstack fuzz has written"
        ) from error
