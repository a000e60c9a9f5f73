"""The fused cells that torch's recurrent layers call on a GPU, forward and backward, by their definitions.

What the forward operations save for the backward ones is theirs: both are decomposed, so its layout is the one said here.
As in torch's kernels, half precision is computed in float32 and what is saved is rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.half import accumulation

aten = torch.ops.aten


def add_fused_cell_decompositions(table: dict[Any, Callable[..., Any]]) -> None:
    """Add the decompositions of this module to ``table``."""
    table[aten._thnn_fused_lstm_cell.default] = _lstm_cell
    table[aten._thnn_fused_lstm_cell_backward_impl.default] = _lstm_cell_backward
    table[aten._thnn_fused_gru_cell.default] = _gru_cell
    table[aten._thnn_fused_gru_cell_backward.default] = _gru_cell_backward


def _lstm_cell(
    from_input: Tensor,
    from_hidden: Tensor,
    cell: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The next hidden and cell state ``[batch, size]``, and the gates ``[batch, 4 * size]``: input, forget, new, output."""
    gates = _with_bias(from_input, input_bias) + _with_bias(from_hidden, hidden_bias)
    dtype = from_input.dtype
    before_input, before_forget, before_new, before_output = gates.chunk(4, 1)
    taken, kept, shown = before_input.sigmoid(), before_forget.sigmoid(), before_output.sigmoid()
    new = before_new.tanh()
    next_cell = kept * _wide(cell) + taken * new
    saved = torch.cat((taken, kept, new, shown), 1)
    return (shown * next_cell.tanh()).to(dtype), next_cell.to(dtype), saved.to(dtype)


def _lstm_cell_backward(
    hidden_gradient: Tensor | None,
    cell_gradient: Tensor | None,
    cell: Tensor,
    next_cell: Tensor,
    gates: Tensor,
    has_bias: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of the gates before activation ``[batch, 4 * size]``, of the cell state, and of a bias ``[4 * size]``."""
    if hidden_gradient is None and cell_gradient is None:
        return None, None, None
    taken, kept, new, shown = _wide(gates).chunk(4, 1)
    squashed = _wide(next_cell).tanh()
    of_hidden = torch.zeros_like(squashed) if hidden_gradient is None else _wide(hidden_gradient)
    of_cell = of_hidden * shown * (1 - squashed * squashed)
    if cell_gradient is not None:
        of_cell = of_cell + _wide(cell_gradient)
    of_gates = torch.cat(
        (
            of_cell * new * _sigmoid_slope(taken),
            of_cell * _wide(cell) * _sigmoid_slope(kept),
            of_cell * taken * (1 - new * new),
            of_hidden * squashed * _sigmoid_slope(shown),
        ),
        1,
    ).to(gates.dtype)
    return of_gates, (of_cell * kept).to(cell.dtype), of_gates.sum(0) if has_bias else None


def _gru_cell(
    from_input: Tensor,
    from_hidden: Tensor,
    hidden: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The next hidden state ``[batch, size]``, and what the gradient needs, ``[batch, 5 * size]``: the reset and the update
    gate, the new state, the hidden state, and what the new state took from it before the reset."""
    input_reset, input_update, input_new = _with_bias(from_input, input_bias).chunk(3, 1)
    hidden_reset, hidden_update, hidden_new = _with_bias(from_hidden, hidden_bias).chunk(3, 1)
    reset, update = (input_reset + hidden_reset).sigmoid(), (input_update + hidden_update).sigmoid()
    new = (input_new + reset * hidden_new).tanh()
    wide = _wide(hidden)
    saved = torch.cat((reset, update, new, wide, hidden_new), 1)
    return (new + update * (wide - new)).to(hidden.dtype), saved.to(hidden.dtype)


def _gru_cell_backward(
    gradient: Tensor, saved: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Gradients of the gates from the input and from the hidden state ``[batch, 3 * size]``, of the hidden state, and of
    both biases ``[3 * size]``."""
    reset, update, new, hidden, hidden_new = _wide(saved).chunk(5, 1)
    of_next = _wide(gradient)
    of_new = of_next * (1 - update) * (1 - new * new)
    of_update = of_next * (hidden - new) * _sigmoid_slope(update)
    of_reset = of_new * hidden_new * _sigmoid_slope(reset)
    of_input = torch.cat((of_reset, of_update, of_new), 1).to(saved.dtype)
    of_hidden = torch.cat((of_reset, of_update, of_new * reset), 1).to(saved.dtype)
    biases = (of_input.sum(0), of_hidden.sum(0)) if has_bias else (None, None)
    return of_input, of_hidden, (of_next * update).to(saved.dtype), *biases


def _with_bias(gates: Tensor, bias: Tensor | None) -> Tensor:
    return _wide(gates) if bias is None else _wide(gates) + _wide(bias)


def _wide(x: Tensor) -> Tensor:
    return x.to(accumulation(x.dtype))


def _sigmoid_slope(activated: Tensor) -> Tensor:
    return activated * (1 - activated)
