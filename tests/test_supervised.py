"""Supervised processes: answers, silence, death, garbage, and the next question after each."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlirstack.errors import WorkerLostError
from mlirstack.supervised import Supervised

CHILD = """
import os, signal, sys, time
from mlirstack.supervised import serve

def answer(question, tell):
    print("a library prints to standard output")
    os.write(1, b"and native code, too\\n")
    tell({"step": question})
    if question == "hang":
        time.sleep(60)
    if question == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if question == "leave":
        os._exit(7)
    if question == "raise":
        raise RuntimeError("out of\\n luck")
    return [os.getpid(), question]

serve(answer)
"""


def child(tmp_path: Path, script: str = CHILD, **options: Any) -> Supervised:
    file = tmp_path / "child.py"
    file.write_text(textwrap.dedent(script))
    return Supervised([sys.executable, str(file)], **{"timeout": 20.0, **options})


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Supervised]:
    with child(tmp_path) as started:
        yield started


def test_one_process_answers_many_questions(worker: Supervised) -> None:
    first, second = worker.ask("one"), worker.ask({"two": [2, None]})
    assert first[1] == "one" and second[1] == {"two": [2, None]}
    assert first[0] == second[0]


@pytest.mark.parametrize(
    ("question", "reason"),
    [("die", r"it died \(SIGKILL\)"), ("leave", "it ended with exit status 7"), ("raise", "RuntimeError: out of luck")],
)
def test_a_lost_process_is_explained_and_replaced(worker: Supervised, question: str, reason: str) -> None:
    before = worker.ask("one")[0]
    with pytest.raises(WorkerLostError, match=reason) as caught:
        worker.ask(question)
    assert caught.value.doing == {"step": question}
    after = worker.ask("one")
    assert after[1] == "one" and after[0] != before


def test_silence_ends_the_process(tmp_path: Path) -> None:
    with child(tmp_path, timeout=0.5) as worker:
        worker.ask("one")
        started = time.monotonic()
        with pytest.raises(WorkerLostError, match=r"no answer within 0\.5 s") as caught:
            worker.ask("hang")
        assert time.monotonic() - started < 10
        assert caught.value.doing == {"step": "hang"}
        assert worker.ask("two")[1] == "two"


@pytest.mark.parametrize("line", ["not JSON at all", '"text"', "12", '["unheard of", 1]'])
def test_garbage_ends_the_process(tmp_path: Path, line: str) -> None:
    script = f"""
    print('["ready", null]', flush=True)
    input()
    print({line!r}, flush=True)
    input()
    """
    with child(tmp_path, script) as worker, pytest.raises(WorkerLostError, match="it answered"):
        worker.ask("one")


def test_a_process_that_does_not_start_says_so(tmp_path: Path) -> None:
    with child(tmp_path, "raise SystemExit(3)") as worker, pytest.raises(WorkerLostError, match="exit status 3") as caught:
        worker.ask("one")
    assert caught.value.doing == "start"
