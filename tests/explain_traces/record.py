"""Record the structured trace of this version of torch for the tests of ``explain``: run it once for each version.

    PYTHONPATH=python:tests python tests/explain_traces/record.py tests/explain_traces/torch-2.13.json

Some of the small programs are captured; a small network is compiled by Inductor, forward and backward, on each device that
it can generate code for here (the CPU needs a C++ compiler).  What is right is written beside each trace.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from explain_programs import PROGRAMS
from torch import nn

from mlirstack.dynamo.explain.capture import Capture, call_with, capture
from mlirstack.dynamo.explain.trace import trace_as_data

NAMES = (
    "straight", "print_in_loop", "print_twice", "logging_call", "break_in_callee", "callee_in_loop", "data_dependent_if",
    "item_call", "data_dependent_for", "nonzero_call", "disabled_call", "explicit_break", "custom_op_without_fake",
    "shape_change", "dtype_change", "rank_change", "global_change", "attribute_change", "grad_mode_change",
)  # fmt: skip


class Network(nn.Module):
    """Two layers, a chain of elementwise ops between them, and a constant to fold."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(32, 64), nn.Linear(64, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` of shape [16, 32], softmax over 8 classes."""
        h = torch.relu(self.fc1(x))
        h = h * torch.sigmoid(h)
        return torch.softmax(self.fc2(h) + torch.ones(8, device=x.device) * 2, -1)


def main() -> None:
    """Write the file that is named on the command line."""
    programs: dict[str, Any] = {}
    for name in NAMES:
        program = PROGRAMS[name]
        function, calls = program.build()
        found = capture(function, calls, generate_code=False)
        right = {
            "graphs": found.compiled_graphs, "breaks": program.breaks(), "changed": list(program.changed),
            "raises": found.error is not None,
        }  # fmt: skip
        programs[name] = {"right": right, "trace": trace_as_data(found.trace)}
    for device in _devices():
        programs[f"network_{device}"] = {"right": {}, "trace": trace_as_data(_network(device).trace)}
    Path(sys.argv[1]).write_text(json.dumps({"torch": torch.__version__, "programs": programs}, indent=0) + "\n")


def _devices() -> list[str]:
    cpu = ["cpu"] if shutil.which("g++") or shutil.which("clang++") else []
    return [*cpu, *(["cuda"] if torch.cuda.is_available() else [])]


def _network(device: str) -> Capture:
    torch.manual_seed(0)
    model, x = Network().to(device), torch.randn(16, 32, device=device)
    found = capture(model, [call_with((x,), {}, backward=True), call_with((x,), {}, backward=False)])
    if found.error is not None:
        raise found.error
    return found


if __name__ == "__main__":
    main()
