"""Wrong numbers are named by their kind; findings become tables, pictures and JSON."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from mlirstack.compare.accuracy import Answer, Reference
from mlirstack.compare.bisect.results import Bisection, Verdict, first_wrong
from mlirstack.compare.bisect.symptoms import symptom
from mlirstack.compare.bisect.table import as_json, conclusions, write_plot
from mlirstack.errors import UsageError


def named(got: torch.Tensor, eager: torch.Tensor, precise: torch.Tensor | None = None) -> str | None:
    expected = Reference(
        Answer({"output": eager}, "*"), Answer({"output": eager if precise is None else precise}, "*"), "float64"
    )
    return symptom(Answer({"output": got}, "*"), expected)


def test_nan_and_infinity_are_named_with_their_place() -> None:
    eager = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert named(torch.tensor([[1.0, 2.0], [float("nan"), 4.0]]), eager) == (
        "output: NaN where eager is finite: 1 of 4 elements, the first at [1, 0]"
    )
    assert "infinity where eager is finite" in str(named(torch.tensor([[1.0, float("inf")], [3.0, 4.0]]), eager))
    infinite = torch.tensor([[1.0, float("inf")], [3.0, 4.0]])
    assert "finite where eager is infinite" in str(named(eager, infinite))


def test_the_range_of_float16_is_named() -> None:
    eager = torch.tensor([3.0, 4.0], dtype=torch.float16)
    overflow = named(torch.tensor([3.0, float("inf")], dtype=torch.float16), eager, eager.double())
    assert overflow == "output: infinity in float16 where eager is at most 4: an intermediate value exceeds 65504"
    large = torch.tensor([3.0, float("inf")], dtype=torch.float16)
    clamped = named(torch.tensor([3.0, 65504.0], dtype=torch.float16), large, torch.tensor([3.0, 1e6]).double())
    assert "clamped to 65504" in str(clamped)
    tiny = torch.tensor([1.0, 3e-7], dtype=torch.float16)
    assert "subnormal" in str(named(torch.tensor([1.0, 0.0], dtype=torch.float16), tiny))


def test_integers_that_wrap_or_saturate_are_named() -> None:
    eager = torch.tensor([5, 200, 300])
    assert named(torch.tensor([5, 200 - 256, 300 - 256]), eager) == (
        "output: integer overflow: wrapped at 8 bits, as int8 does: 2 of 3 elements, the first at [1]"
    )
    assert "saturated at the range of int8" in str(named(torch.tensor([5, 127, 127]), eager))
    large = torch.tensor([1, 1 << 32])
    assert "wrapped at" in str(named(torch.tensor([1, 0]), large))
    assert named(torch.tensor([5, 201, 300]), eager) is None  # wrong, but in no way that has a name
    assert named(eager, eager) is None


def found(*verdicts: Verdict) -> Bisection:
    name, suspects = first_wrong(verdicts)
    return Bisection("net", "cuda", "tosa", "eager in float64", verdicts, name, suspects)


OK = Verdict("linalg", "ok", 1e-7, 1e-5, level="linalg")
WRONG = Verdict("plan", "wrong", float("nan"), 1e-5, "NaN", "output: NaN where eager is finite", "plan")


def test_what_was_not_executed_before_a_wrong_stage_is_suspected_too() -> None:
    between = Verdict("nvvm", "not executed", reason="runs as part of the artifact only")
    bisection = found(OK, Verdict("gpu", "not executed"), between, WRONG)
    assert bisection.first_wrong_stage == "plan"
    assert bisection.suspects == ("gpu", "nvvm", "plan")
    assert any("gpu, nvvm" in line for line in conclusions(bisection))
    assert found(OK, Verdict("gpu", "error"), OK, WRONG).suspects == ("plan",)  # what follows it is right


def test_exit_status() -> None:
    assert found(OK, WRONG).exit_status == 1
    assert found(OK, Verdict("plan", "needs a device")).exit_status == 0
    assert found(Verdict("linalg", "error")).exit_status == 3
    assert found(Verdict("linalg", "error"), OK).exit_status == 0  # what follows it is right


def test_an_end_that_could_not_be_executed_is_not_right() -> None:
    bisection = found(OK, Verdict("gpu", "error"), Verdict("sass", "not executed"), Verdict("plan", "error"))
    assert bisection.exit_status == 3
    assert conclusions(bisection)[-1] == "not known of 2, which could not be executed: gpu, plan"


def test_json_and_plot_hold_every_stage(tmp_path: Path) -> None:
    bisection = found(OK, WRONG)
    data = json.loads(json.dumps(as_json(bisection), allow_nan=False))
    assert data["first_wrong_stage"] == "plan"
    assert [(s["name"], s["status"], s["rel_l2"]) for s in data["stages"]] == [
        ("linalg", "ok", 1e-7),
        ("plan", "wrong", "nan"),
    ]
    file = tmp_path / "growth.svg"
    write_plot(bisection, file)
    circles = list(ElementTree.parse(file).iter("{http://www.w3.org/2000/svg}circle"))
    assert [circle.get("fill") for circle in circles] == ["#2e7d32", "#c62828"]
    with pytest.raises(UsageError, match="written as SVG"):
        write_plot(bisection, tmp_path / "growth.png")
