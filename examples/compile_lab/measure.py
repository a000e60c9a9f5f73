"""What the scripts of the lab share: seconds of a call with warm-up and synchronisation done right, and the device."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import torch

from mlirstack.compare.timing import Effort, measure

EFFORT = Effort(seconds=0.5, min_samples=7, max_samples=100)


def device_argument(doc: str | None) -> str:
    """``--device cpu|cuda`` of the command line."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    return str(parser.parse_args().device)


def synchronize() -> None:
    """Wait for the GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds_of(call: Callable[[], object]) -> float:
    """One call, waited for."""
    synchronize()
    started = time.perf_counter()
    call()
    synchronize()
    return time.perf_counter() - started


def medians(calls: dict[str, Callable[[], object]], effort: Effort = EFFORT) -> dict[str, float]:
    """Median seconds per call, measured in turns after warm-up, each call waited for."""

    def waited(call: Callable[[], object]) -> Callable[[], object]:
        def run() -> None:
            call()
            synchronize()

        return run

    return {name: t.median_s for name, t in measure({n: waited(c) for n, c in calls.items()}, effort).items()}


def show(result: dict[str, Any]) -> None:
    """The result as it goes into the documentation."""
    print(json.dumps(result, indent=1))
