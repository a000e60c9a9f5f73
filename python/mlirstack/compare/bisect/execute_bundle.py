"""The process in which bundles are executed, on machines without MLIR; and what all executing processes share.

Started as ``python -m mlirstack.compare.bisect.execute_bundle``; answers the questions that :mod:`.executor` asks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from mlirstack.bundle.store import read_bundle
from mlirstack.compare.bisect.subject import Subject
from mlirstack.compare.bisect.symptoms import symptom
from mlirstack.errors import DeviceError, MlirstackError, TargetUnavailableError
from mlirstack.supervised import Tell, serve
from mlirstack.targets.base import Executable
from mlirstack.targets.registry import create_target

Asked = Callable[[dict[str, Any], Subject, Tell], Any]


def serve_questions(asked: Mapping[str, Asked]) -> None:
    """Serve questions, each about the subject in a file that it names, with the function that its ``do`` names."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    held: dict[str, Subject] = {}  # the last one

    def answer(question: dict[str, Any], tell: Tell) -> Any:
        file = question["subject"]
        try:
            if file not in held:
                held.clear()
                held[file] = Subject.load(Path(file))
            return asked[question["do"]](question, held[file], tell)
        except TargetUnavailableError as error:
            return {"error": error.message, "status": "needs a device"}
        except DeviceError as error:
            return {"error": f"stage crashes when executed: {error.message}", "status": "crash"}
        except MlirstackError as error:
            return {"error": error.message, "status": "error"}

    serve(answer)


def judged(executable: Executable, subject: Subject) -> dict[str, Any]:
    """The verdict on the answer of an executable as plain data."""
    got = subject.answer(executable)
    accuracy = subject.judge(got, tf32=executable.tf32)
    worst = accuracy.worst
    return {
        "ok": accuracy.ok,
        "rel_l2": worst.rel_l2 if worst else 0.0,
        "tolerance": worst.tolerance if worst else 0.0,
        "reason": accuracy.reason,
        "symptom": None if accuracy.ok else symptom(got, subject.expected),
    }


def run_bundle(question: dict[str, Any], subject: Subject, tell: Tell) -> dict[str, Any]:
    """Execute what the target has built; parameters are the subject's."""
    tell("loading")
    bundle = read_bundle(Path(question["file"]), subject.parameters)
    executable = create_target(question["target"]).load(bundle.artifact, subject.signature, subject.parameters)
    tell("executing")
    return judged(executable, subject)


if __name__ == "__main__":
    serve_questions({"bundle": run_bundle})
