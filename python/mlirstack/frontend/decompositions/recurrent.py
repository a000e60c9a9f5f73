"""LSTM layers by torch's own decomposition, with states of the shape that eager gives.

That of torch 2.11 takes the dimension of the batch from each layer's final state in the place of the one that it had put in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.extend import Decomposition

aten = torch.ops.aten


def add_recurrent_decompositions(table: dict[Any, Decomposition]) -> None:
    """Wrap the decomposition that ``table`` has."""
    decomposed = table[aten.lstm.input]

    def lstm(x: Tensor, states: Sequence[Tensor], *options: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Final states have the shapes of the ones given, [layers * directions, batch, size], and lie in memory so."""
        output, hidden, cell = decomposed(x, states, *options)
        return output, hidden.reshape(states[0].shape), cell.reshape(states[1].shape)

    table[aten.lstm.input] = lstm
