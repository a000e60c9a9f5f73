"""Record the structured trace of this version of torch for the tests of ``explain``: run it once for each version.

    PYTHONPATH=python:tests python tests/explain_traces/record.py tests/explain_traces/torch-2.13.json [SECONDS]

Some of the small programs are captured; a small network is compiled by Inductor, forward and backward, on each device that
it can generate code for here (the CPU needs a C++ compiler).  What is right is written beside each trace; what takes longer
than SECONDS is left out.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from functools import partial
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


class _TooLong(BaseException):
    """No Exception: whatever compiling raises is caught where it is compiled."""


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
    """Write the file that is named on the command line, anew after each program: what takes too long is left out."""
    makers = {f"network_{device}": partial(_of_network, device) for device in _devices()}
    makers |= {name: partial(_of_program, name) for name in NAMES}
    programs: dict[str, Any] = {}
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 600
    signal.signal(signal.SIGALRM, _too_long)
    for name, make in makers.items():
        started = time.perf_counter()
        signal.alarm(seconds)
        try:
            programs[name] = make()
        except _TooLong:
            print(f"{name}: left out, more than {seconds} s", file=sys.stderr)
        finally:
            signal.alarm(0)
        print(f"{name}: {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True)
        Path(sys.argv[1]).write_text(json.dumps({"torch": torch.__version__, "programs": programs}, indent=0) + "\n")


def _too_long(signum: int, frame: object) -> None:
    raise _TooLong


def _of_program(name: str) -> dict[str, Any]:
    program = PROGRAMS[name]
    function, calls = program.build()
    found = capture(function, calls, generate_code=False)
    right = {
        "graphs": found.compiled_graphs, "breaks": program.breaks(), "changed": list(program.changed),
        "raises": found.error is not None,
    }  # fmt: skip
    return {"right": right, "trace": trace_as_data(found.trace)}


def _of_network(device: str) -> dict[str, Any]:
    return {"right": {}, "trace": trace_as_data(_network(device).trace)}


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
