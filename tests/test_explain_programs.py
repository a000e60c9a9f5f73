"""``explain`` counts right: graphs, breaks and recompilations of small programs whose answers are known.

Graphs are captured and run in eager here; what is counted is decided by Dynamo alone.
"""

from __future__ import annotations

import pytest
import torch
from explain_programs import PROGRAMS, Program, print_in_loop, vector

from mlirstack.dynamo.explain.breaks import graph_breaks
from mlirstack.dynamo.explain.capture import Capture, capture
from mlirstack.dynamo.explain.doctor import categorize
from mlirstack.dynamo.explain.explain import explain_trace
from mlirstack.dynamo.explain.recompiles import recompilations


def captured(program: Program) -> Capture:
    function, calls = program.build()
    return capture(function, calls, generate_code=False)


@pytest.mark.parametrize("name", PROGRAMS)
def test_counts(name: str) -> None:
    """Every marked line is a break of its category, no other line is; graphs and recompilations are as counted by hand."""
    program = PROGRAMS[name]
    found = captured(program)
    explanation = explain_trace(found.trace, name, error=str(found.error or ""))
    breaks = sorted((one.found.line, one.category) for one in explanation.breaks)
    assert breaks == program.breaks()
    assert explanation.graph_count == found.compiled_graphs == program.graphs
    assert tuple(one.kind for one in explanation.recompiles) == program.changed
    assert len(explanation.recompiles) == program.recompiles


def test_break_tells_where_and_why() -> None:
    """File, line, source, id, hint and stack of one break are the user's."""
    (found,) = graph_breaks(captured(PROGRAMS["break_in_callee"]).trace)
    assert found.file.endswith("tests/explain_programs.py")
    assert found.source.startswith('print("in the callee")')
    assert (found.id, found.hits, found.skipped) == ("GB0059", 2, False)
    assert [frame.function for frame in found.frames][-2:] == ["break_in_callee", "print_helper"]
    assert "print" in found.hints[0]


def test_break_in_a_loop_skips_the_function() -> None:
    """Dynamo gives the whole function up; that is said of the one break, whatever the number of rounds."""
    (found,) = graph_breaks(captured(PROGRAMS["print_in_loop"]).trace)
    assert found.skipped
    assert found.source.startswith("print(")
    assert print_in_loop(vector())[0] == 4.0


def test_failure_to_compile_is_a_break() -> None:
    """An op without a fake kernel makes torch.compile raise: the line is told, and what to do about it."""
    found = captured(PROGRAMS["custom_op_without_fake"])
    assert found.error is not None
    (one,) = graph_breaks(found.trace, failed=True)
    assert one.fatal
    assert categorize(one).name == "custom-op"
    assert "op_without_fake(y)" in one.source


@pytest.mark.parametrize(
    ("name", "what", "before", "after"),
    [
        ("shape_change", "x, dimension 0", "8", "9"),
        ("dtype_change", "x", "Float", "Double"),
        ("rank_change", "x", "1", "2"),
        ("global_change", "SCALE", "2", None),
        ("attribute_change", "self.power", "2", None),
        ("grad_mode_change", "grad_mode", None, None),
    ],
)
def test_recompilation_tells_what_changed(name: str, what: str, before: str | None, after: str | None) -> None:
    """None: torch does not say the value, and the report says so."""
    missing = f"not given by torch {torch.__version__.partition('+')[0]}"
    (found,) = recompilations(captured(PROGRAMS[name]).trace)
    assert (found.what, found.before, found.after) == (what, before or missing, after or missing)
    assert found.file.endswith("tests/explain_programs.py")
    assert found.line > 0
