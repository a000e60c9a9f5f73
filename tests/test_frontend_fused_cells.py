"""The fused cells of recurrent layers against torch's own cells, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from mlirstack.frontend.decompositions.table import decomposition_table

aten = torch.ops.aten
BATCH, FEATURES, SIZE = 3, 4, 5


def leaves(*shapes: Sequence[int]) -> list[torch.Tensor]:
    """Tensors of float64 that gradients are wanted of."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes]


def assert_close(got: Sequence[torch.Tensor | None], wanted: Sequence[torch.Tensor | None]) -> None:
    for ours, eager in zip(got, wanted, strict=True):
        assert ours is not None and eager is not None
        torch.testing.assert_close(ours, eager, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("has_bias", [True, False])
def test_lstm_cell(has_bias: bool) -> None:
    table = decomposition_table()
    x, hidden, cell, of_x, of_hidden = leaves(
        (BATCH, FEATURES), (BATCH, SIZE), (BATCH, SIZE), (4 * SIZE, FEATURES), (4 * SIZE, SIZE)
    )
    biases = leaves((4 * SIZE,), (4 * SIZE,)) if has_bias else []
    wanted = torch.lstm_cell(x, (hidden, cell), of_x, of_hidden, *biases)
    from_x, from_hidden = (x @ of_x.T).detach(), (hidden @ of_hidden.T).detach()

    *states, gates = table[aten._thnn_fused_lstm_cell.default](from_x, from_hidden, cell, *biases)
    assert_close(states, wanted)

    gradients = torch.randn(2, BATCH, SIZE, dtype=torch.float64)
    inputs = [hidden, cell, of_x, *biases[:1]]
    for given in ((gradients[0], gradients[1]), (gradients[0], None), (None, gradients[1])):
        pairs = [(state, gradient) for state, gradient in zip(wanted, given, strict=True) if gradient is not None]
        expected = torch.autograd.grad(
            [state for state, _ in pairs], inputs, [gradient for _, gradient in pairs], retain_graph=True
        )
        of_gates, of_cell, of_bias = table[aten._thnn_fused_lstm_cell_backward_impl.default](
            *given, cell, states[1], gates, has_bias
        )
        ours = [of_gates @ of_hidden, of_cell, of_gates.T @ x, *([of_bias] if has_bias else [])]
        assert_close(ours, expected)
        assert (of_bias is None) == (not has_bias)


@pytest.mark.parametrize("has_bias", [True, False])
def test_gru_cell(has_bias: bool) -> None:
    table = decomposition_table()
    x, hidden, of_x, of_hidden = leaves((BATCH, FEATURES), (BATCH, SIZE), (3 * SIZE, FEATURES), (3 * SIZE, SIZE))
    biases = leaves((3 * SIZE,), (3 * SIZE,)) if has_bias else []
    wanted = torch.gru_cell(x, hidden, of_x, of_hidden, *biases)
    from_x, from_hidden = (x @ of_x.T).detach(), (hidden @ of_hidden.T).detach()

    state, saved = table[aten._thnn_fused_gru_cell.default](from_x, from_hidden, hidden, *biases)
    assert_close([state], [wanted])

    gradient = torch.randn(BATCH, SIZE, dtype=torch.float64)
    expected = torch.autograd.grad(wanted, [x, hidden, of_x, of_hidden, *biases], gradient)
    input_gates, hidden_gates, of_state, *of_biases = table[aten._thnn_fused_gru_cell_backward.default](
        gradient, saved, has_bias
    )
    ours = [input_gates @ of_x, of_state + hidden_gates @ of_hidden, input_gates.T @ x, hidden_gates.T @ hidden]
    assert_close([*ours, *(of_biases if has_bias else [])], expected)
    assert has_bias or of_biases == [None, None]


def test_half_precision_is_computed_in_float32() -> None:
    gates, states = torch.randn(2, 4 * SIZE).half(), torch.randn(2, SIZE).half()
    rule = decomposition_table()[aten._thnn_fused_lstm_cell.default]
    halves = rule(gates, gates, states)
    wide = rule(gates.float(), gates.float(), states.float())
    assert all(torch.equal(half, full.half()) for half, full in zip(halves, wide, strict=True))
