"""What starting mlirstack-opt costs: whole processes, medians, as ratios to ``import torch_mlir.ir`` in the same run.

A lit suite starts the tool hundreds of times, so this is what the suite costs.  Contenders take turns in random order.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BIN = Path(sys.executable).parent
PROGRAM = """func.func @main(%x: i32, %c: i1) -> i32 {
  %zero = arith.constant 0 : i32
  %sum = arith.addi %x, %zero : i32
  %0 = scf.if %c -> i32 {
    scf.yield %sum : i32
  } else {
    scf.yield %x : i32
  }
  return %0 : i32
}
"""
BASE = "import torch_mlir.ir"


def contenders(source: Path) -> dict[str, list[str]]:
    """``{name: command}``; the first is what the others are compared with."""
    python, tool = sys.executable, str(BIN / "mlirstack-opt")
    return {
        BASE: [python, "-c", "import torch_mlir.ir"],
        "bindings library alone": [python, "-c", "from torch_mlir._mlir_libs._mlir import ir"],
        "mlirstack-opt --version": [tool, "--version"],
        "mlirstack-opt --canonicalize (10 lines)": [tool, str(source), "--canonicalize"],
        "python -c pass": [python, "-c", "pass"],
    }


def measure(rounds: int) -> dict[str, float]:
    """Median wall time of each contender, in seconds."""
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in.mlir"
        source.write_text(PROGRAM)
        commands = contenders(source)
        for _ in range(rounds + 1):  # the first round warms the file cache
            order = list(commands)
            random.shuffle(order)
            for name in order:
                started = time.perf_counter()
                subprocess.run(commands[name], check=True, capture_output=True)
                times.setdefault(name, []).append(time.perf_counter() - started)
    return {name: statistics.median(times[name][1:]) for name in commands}


def main() -> None:
    """Print the table; with ``--json FILE`` write it too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    medians = measure(arguments.rounds)
    for name, seconds in medians.items():
        print(f"{name:<42} {1e3 * seconds:7.1f} ms  {seconds / medians[BASE]:5.2f} x")
    if arguments.json:
        rows = [{"name": n, "median_s": s, "ratio": s / medians[BASE]} for n, s in medians.items()]
        arguments.json.write_text(json.dumps({"base": BASE, "results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
