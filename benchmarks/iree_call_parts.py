"""Where the time of a call of an ``iree-cuda`` bundle goes, on a GPU.

    python benchmarks/iree_call_parts.py BUNDLE [BUNDLE ...]

One line for each: microseconds (median of the calls) of the whole call, of checking what is passed, of making the arguments
of the module (memory of results and temporaries, views), of invoking it until everything is queued, and of the wait for the
device.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlirstack.bundle.load import load
from mlirstack.bundle.store import open_bundle, stored_golden
from mlirstack.deploy.bench import golden_call
from mlirstack.targets.iree.gpu import IreeCudaExecutable

CALLS = 300


def parts(path: Path) -> dict[str, float]:
    """Medians in microseconds."""
    manifest = open_bundle(path)
    function = load(path, device="iree-cuda").function
    executable = getattr(function, "executable", None)
    assert isinstance(executable, IreeCudaExecutable)
    call = golden_call(function, manifest, stored_golden(path, manifest), executable.device)
    spent: dict[str, list[float]] = {"whole": [], "run": [], "invoke": [], "wait": []}

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            begun = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                spent[part].append(time.perf_counter() - begun)

        return run

    executable.run = timed("run", executable.run)  # type: ignore[method-assign]
    session = executable._session
    session.begin = timed("invoke", session.begin)  # type: ignore[method-assign]
    session.wait = timed("wait", session.wait)  # type: ignore[method-assign]
    for _ in range(CALLS):
        timed("whole", call)()
    found = {part: statistics.median(times[CALLS // 4 :]) * 1e6 for part, times in spent.items()}
    whole, run, invoke, wait = found.values()
    return {"whole": whole, "checks": whole - run, "arguments": run - invoke - wait, "invoke": invoke, "wait": wait}


def main() -> None:
    for name in sys.argv[1:]:
        print(Path(name).name, {part: round(time, 1) for part, time in parts(Path(name)).items()}, flush=True)


if __name__ == "__main__":
    main()
