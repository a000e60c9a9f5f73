"""Operations of models of the zoo know their line of the model at every level down to the LLVM dialect."""

from __future__ import annotations

import pytest

from mlirstack.frontend.export import export
from mlirstack.lowering import LowerOptions, lower_program
from mlirstack.report.provenance import Shares
from mlirstack.zoo.registry import get

pytestmark = pytest.mark.portable

REQUIRED = 0.95


def shares_of(name: str, target: str, to: str) -> Shares:
    model = get(name)
    program = export(model.module, model.inputs, {}, dynamic_shapes=model.dynamic_shapes, name=name)
    shares = Shares()
    lower_program(program, LowerOptions(target=target, to=to), [shares])
    return shares


@pytest.mark.parametrize("name", ["mlp_residual", "conv2d_same", "softmax", "sdpa_causal", "lstm_cell", "batch_norm1d"])
def test_operations_know_their_line(name: str) -> None:
    shares = shares_of(name, "cpu", "llvm")
    stage, share = shares.least()
    assert {"torch", "linalg", "loops", "llvm"} <= shares.stages.keys()
    assert share >= REQUIRED, f"{share:.1%} at {stage}"


@pytest.mark.target
def test_what_iree_is_given_knows_its_lines_with_the_code_that_calls_our_kernels() -> None:
    shares = shares_of("layer_norm", "iree-cpu", "program")
    known, total = shares.stages["program"]
    assert "llvm" in shares.stages and total > 20
    assert shares.least()[1] >= REQUIRED, (shares.least(), known, total)
