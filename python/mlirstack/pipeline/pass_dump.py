"""The IR after each pass of a stage, on request.

Stages run as they always do; afterwards each is replayed on its input, one pass at a time, and what a pass leaves is written
where it differs from what stood before::

    passes/NN-stage/KK.mlir      readable text after pass KK of the stage
    passes/NN-stage/index.json   all passes: name, seconds, number of operations, file (null where nothing changed)
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

from mlirstack.bindings import ir, new_context
from mlirstack.ir.ops import op_counts
from mlirstack.ir.text import module_text, parse_module
from mlirstack.pipeline.dump import PASSES
from mlirstack.pipeline.runner import Observer, StageOutput, StageRun, run_steps
from mlirstack.pipeline.step import Translation, step_text


class PassDump(Observer):
    """Writes the IR after each pass to ``directory``, a dump.

    Stages that begin or end outside MLIR have none, and a stage whose result was overridden has none either.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory / PASSES

    def after(self, run: StageRun, output: StageOutput) -> None:
        """Replay the stage and write its passes."""
        folder = self.directory / f"{run.index:02d}-{run.stage.name}"
        shutil.rmtree(folder, ignore_errors=True)
        steps = run.stage.steps
        if not isinstance(run.input, bytes) or not isinstance(output.payload, ir.Module):
            return
        if not steps or any(isinstance(step, Translation) for step in steps):
            return
        module = parse_module(run.input, new_context())
        before = module_text(module, verified=True)
        folder.mkdir(parents=True)
        entries: list[dict[str, Any]] = []
        for number, step in enumerate(steps):
            started = time.perf_counter()
            run_steps((step,), module)
            seconds = time.perf_counter() - started
            text = module_text(module, verified=True)
            file = None if text == before else f"{number:02d}.mlir"
            if file is not None:
                (folder / file).write_text(text)
            ops = sum(op_counts(module).values())
            entries.append({"pass": step_text(step), "seconds": round(seconds, 6), "ops": ops, "file": file})
            before = text
        if before == module_text(output.payload, verified=True):
            (folder / "index.json").write_text(json.dumps(entries, indent=1) + "\n")
        else:  # somebody else's IR took the place of what the passes leave
            shutil.rmtree(folder)
