"""Torch's own decomposition of LSTM layers, mended where its final states have a shape that eager's have not.

That of torch 2.11 and 2.12 takes a dimension away from them that is not the one it had added.  torch.export, AOTAutograd and
(for tensors on a GPU) Dynamo use it, and trace what follows the layer with the wrong shape: no rule of a table can put that
right later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decompositions

# Steps, the states before the first, weights and whether they have biases in; the outputs and the states after the last out.
_Layer = Callable[..., tuple[Tensor, tuple[Tensor, Tensor]]]


def mend_lstm_layers() -> None:
    """Let torch's decomposition of one LSTM layer give final states of the shapes of those given, if it does not."""
    layer: _Layer = decompositions.one_layer_lstm

    def mended(
        x: Tensor, states: tuple[Tensor, Tensor], *options: Any, **named: Any
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        output, (hidden, cell) = layer(x, states, *options, **named)
        return output, (hidden.reshape(states[0].shape), cell.reshape(states[1].shape))

    if _final_shape(layer) != _BATCH_AND_SIZE:
        setattr(decompositions, "one_layer_lstm", mended)  # noqa: B010 (to mypy it is a function)


_BATCH_AND_SIZE = (2, 3)


def _final_shape(layer: _Layer) -> tuple[int, ...]:
    """The shape of the final hidden state of one step of a layer, of tensors without data."""
    batch, size = _BATCH_AND_SIZE
    x, state, weight = (torch.empty(shape, device="meta") for shape in ((1, batch, size), (batch, size), (4 * size, size)))
    _, (hidden, _) = layer(x, (state, state), [weight, weight], False)
    return tuple(hidden.shape)
