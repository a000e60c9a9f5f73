"""The process that compiles candidates: one question per candidate, so that a crash or a hang costs that one alone.

A question names the file of a problem, the target, the schedule, and the directory of the bundle; the answer is None.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from mlirstack.bindings import new_context
from mlirstack.bundle.store import BundleInfo, write_bundle
from mlirstack.errors import MlirstackError, StageError
from mlirstack.frontend.mlir_source import program_of_module
from mlirstack.ir.kernels import KERNEL_ATTRIBUTE
from mlirstack.ir.ops import functions
from mlirstack.ir.text import read_module
from mlirstack.passes.cuda.plan import LaunchPlan
from mlirstack.pipeline.runner import Runner
from mlirstack.schedules.cuda.emitter import Choice
from mlirstack.schedules.cuda.kernel import SCHEDULE
from mlirstack.supervised import Tell, serve
from mlirstack.targets.cuda.target import PLAN_FILE, PTX_FILE
from mlirstack.targets.registry import create_target
from mlirstack.tune.candidate_set import Entry
from mlirstack.tune.problems import remaining
from mlirstack.versions import versions


def answer(question: dict[str, Any], tell: Tell) -> str | None:
    """Build one candidate; why it cannot be built, or None."""
    try:
        compile_candidate(
            Path(question["module"]), question["target"], question["choice"], Path(question["directory"])
        )  # fmt: skip
    except MlirstackError as error:
        return " ".join(error.message.split())[:300]
    return None


def compile_candidate(file: Path, target: str, choice: Entry, directory: Path) -> LaunchPlan:
    """Write the bundle of the problem in ``file`` with the schedule ``choice`` to ``directory``; returns its launch plan.

    Raises :class:`StageError` where a stage fails, or where the kernels come out with another schedule.
    """
    module = read_module(file, new_context())
    name = str(choice["name"])
    parameters = {key: value for key, value in choice.items() if key != "name"}
    with module.context:
        for function in functions(module):
            if KERNEL_ATTRIBUTE in function.attributes:
                function.attributes[SCHEDULE] = Choice(name, parameters).attribute()
    program = program_of_module(module, file.parent.name)
    artifact = create_target(target).build(program, Runner().run(remaining(target), module))
    plan = LaunchPlan.from_json(artifact.files[PLAN_FILE].decode())
    if name not in {kernel.schedule for kernel in plan.kernels}:
        found = ", ".join(sorted({kernel.schedule for kernel in plan.kernels})) or "no kernel"
        raise StageError(f"asked for schedule '{name}', got {found}", stage="plan")
    # What is timed is machine code; without the PTX, sets of many candidates stay small.
    machine_code = replace(artifact, files={**artifact.files, PTX_FILE: b""})
    info = BundleInfo(program.name, "linalg", "a kernel of its own", versions())
    write_bundle(directory, machine_code, program.signature, {}, info)
    return plan


if __name__ == "__main__":
    serve(answer)
