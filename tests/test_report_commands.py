"""The commands report, show and diff: what they print, and their exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from report_models import lower_to
from typer.testing import CliRunner, Result

from mlirstack.cli.main import app

pytestmark = pytest.mark.portable


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dump")
    lower_to(directory, "cpu")
    return directory


def test_report_writes_a_page_and_numbers(dump: Path, tmp_path: Path) -> None:
    done = run("report", dump, "-o", tmp_path / "page.html", "--json", tmp_path / "numbers.json")
    assert done.exit_code == 0, done.output
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert [entry["share"] for entry in numbers["provenance"] if entry["level"] == "linalg"] == [1.0] * 6
    assert len(numbers["kernels"]) == 5  # two of them pack weights, once at load


def test_show_lists_stages_and_prints_one(dump: Path) -> None:
    listed = run("show", dump)
    assert listed.exit_code == 0 and "prepared" in listed.output and "torch.aten.mm" in listed.output
    printed = run("show", dump, "tosa")
    assert printed.output == (dump / "02-tosa.mlir").read_text()
    assert run("show", dump, "2").output == printed.output


def test_diff_of_stages(dump: Path, tmp_path: Path) -> None:
    assert run("diff", dump, "linalg", "03-linalg").exit_code == 0
    changed = run("diff", dump, "linalg", "prepared", "--json", tmp_path / "diff.json")
    assert changed.exit_code == 1 and "+  func.func @prepare" in changed.output
    numbers = json.loads((tmp_path / "diff.json").read_text())
    assert numbers["ops"]["func.func"] == [1, 2] and numbers["added"] > 0
    counted = run("diff", dump, "linalg", "prepared", "--stat")
    assert f"{numbers['removed']} line(s) removed, {numbers['added']} added" in counted.output


def test_diff_of_dumps_names_the_first_stage_that_differs(tmp_path: Path) -> None:
    again, edited = tmp_path / "again", tmp_path / "edited"
    lower_to(again, "cpu", to="kernels")
    lower_to(edited, "cpu", to="kernels")
    assert run("diff", again, edited).exit_code == 0
    file, trace = edited / "05-fused.mlir", json.loads((edited / "trace.json").read_text())
    file.write_text(file.read_text().replace("arith.maximumf", "arith.minimumf"))
    trace["stages"][5]["sha256"] = "0" * 64
    (edited / "trace.json").write_text(json.dumps(trace))
    found = run("diff", again, edited, "--json", "-")
    assert found.exit_code == 1
    assert json.loads(found.output)["first_different_stage"] == "fused"
    assert "-      %" in run("diff", again, edited, "fused").output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("report", "nowhere"), "holds no dump"),
        (("show", "{dump}", "linalgg"), "no stage 'linalgg'; nearest: linalg"),
        (("diff", "{dump}", "linalg"), "name two stages, or a second dump"),
    ],
)
def test_wrong_use_is_one_short_error(
    dump: Path, arguments: tuple[str, ...], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    done = run(*(argument.format(dump=dump) for argument in arguments))
    assert done.exit_code == 2
    assert words in " ".join((done.output + capfd.readouterr().err).split())
