"""Pass-pipeline text: parsing, printing, and the errors of a misspelt one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from mlirstack.errors import PipelineError, UsageError
from mlirstack.pipeline import registry, table
from mlirstack.pipeline.parse import parse_pipeline
from mlirstack.pipeline.stage import Pipeline, Stage
from mlirstack.pipeline.step import Pass, PythonPass, pipeline_text


@dataclass(frozen=True)
class Count(PythonPass):
    """A Python pass with one option of each kind."""

    name: ClassVar[str] = "test-count"
    limit: int = 3
    sizes: tuple[int, ...] = (1, 2)
    loud: bool = False
    label: str = ""

    def apply(self, module: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_python_steps", table.python_steps())
    registry.register_step("test-count", f"{__name__}:Count")


def test_neighbours_on_one_anchor_share_it() -> None:
    steps = (Pass("canonicalize"), Pass("cse", on="func.func"), Pass("sccp", on="func.func"), Pass("symbol-dce"))
    assert pipeline_text(steps) == "builtin.module(canonicalize,func.func(cse,sccp),symbol-dce)"


def test_options_print_in_mlir_spelling() -> None:
    options = {"include-apply-rescale": True, "use-32-bit": False}
    assert Pass("tosa-to-arith", options).text() == "tosa-to-arith{include-apply-rescale=true use-32-bit=false}"
    assert Count(limit=7, sizes=(4, 5), label="a b").text() == 'test-count{limit=7 sizes=4,5 label="a b"}'
    assert Count().text() == "test-count"


@pytest.mark.parametrize(
    "text",
    [
        "builtin.module(canonicalize,func.func(cse,sccp),symbol-dce)",
        "builtin.module(tosa-to-arith{include-apply-rescale=true},gpu.module(canonicalize))",
        'builtin.module(test-count{limit=7 sizes=4,5 loud=true label="a b"},cse)',
        "builtin.module()",
    ],
)
def test_text_round_trips(text: str) -> None:
    assert pipeline_text(parse_pipeline(text)) == text


def test_white_space_is_harmless() -> None:
    spaced = "builtin.module(\n  canonicalize ,\n  func.func( cse ,sccp )\t, test-count{ limit=7   loud=1 }\n)"
    assert (
        pipeline_text(parse_pipeline(spaced))
        == "builtin.module(canonicalize,func.func(cse,sccp),test-count{limit=7 loud=true})"
    )


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("canonicalize,,cse", 14, "expected a pass name"),
        ("canonicalize{top-down=true", 13, "'{' is never closed"),
        ("func.func(cse", 14, "expected ')' before the end"),
        ("cse)", 4, "unexpected ')'"),
        ("func.func(test-count)", 11, "runs on the module"),
        ("test-count{limt=3}", 1, "no option 'limt'"),
        ("test-count{limit=x}", 1, "not a valid value"),
    ],
)
def test_syntax_errors_have_a_caret(text: str, column: int, message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        parse_pipeline(text)
    assert message in caught.value.message
    assert f":1:{column}:" in caught.value.message
    caret_line = caught.value.message.splitlines()[-1]
    assert caret_line == " " * (column + 1) + "^"


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (Pass("canonicalise"), "nearest: canonicalize"),
        (Pass("canonicalize", {"topdown": True}), "nearest: top-down"),
        (Pass("one-shot-bufferize", on="func.func"), "runs on 'builtin.module'"),
        (Pass("tosa-to-linalg-namd", on="func.func"), "nearest: tosa-to-linalg-named"),
    ],
)
def test_stage_refuses_unknown_names_when_built(step: Pass, expected: str) -> None:
    with pytest.raises(PipelineError) as caught:
        Stage("lowering", "linalg", (step,))
    assert "stage 'lowering'" in caught.value.message
    assert expected in caught.value.message


def test_pipeline_names_are_unique_and_looked_up_with_help() -> None:
    one, two = Stage("one", "linalg", ()), Stage("two", "linalg", ())
    with pytest.raises(PipelineError, match="unique: one"):
        Pipeline("p", (one, one))
    pipeline = Pipeline("p", (one, two, Stage("three", "scf", ())))
    assert pipeline.slice(first="one").names() == ["two", "three"]
    assert pipeline.slice(last="two").names() == ["one", "two"]
    with pytest.raises(UsageError, match="nearest: three"):
        pipeline.index("tree")
    with pytest.raises(UsageError, match="comes after"):
        pipeline.slice(first="three", last="one")


@pytest.mark.slow
def test_table_of_native_passes_is_that_of_the_bindings() -> None:
    assert registry.scan() == registry.native_passes()
