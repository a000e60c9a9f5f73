"""Operations of models of the zoo know their line of the model at every level down to the LLVM dialect."""

from __future__ import annotations

import pytest

from mlirstack.frontend.export import export
from mlirstack.lowering import LowerOptions, lower_program
from mlirstack.report.provenance import Shares
from mlirstack.zoo.registry import get

pytestmark = pytest.mark.portable

REQUIRED = 0.95


@pytest.mark.parametrize("name", ["mlp_residual", "conv2d_same", "softmax", "sdpa_causal", "lstm_cell", "batch_norm1d"])
def test_operations_know_their_line(name: str) -> None:
    model = get(name)
    program = export(model.module, model.inputs, {}, dynamic_shapes=model.dynamic_shapes, name=name)
    shares = Shares()
    lower_program(program, LowerOptions(target="cpu", to="llvm"), [shares])
    stage, share = shares.least()
    assert {"torch", "linalg", "loops", "llvm"} <= shares.stages.keys()
    assert share >= REQUIRED, f"{share:.1%} at {stage}"
