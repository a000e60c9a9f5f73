"""Recurrent models: single steps and short sequences, which export unrolls."""

from __future__ import annotations

from torch import Tensor, nn

from mlirstack.zoo.recipe import model, normal


class LstmStep(nn.Module):
    """x (batch, inputs), h and c (batch, state) → the new (h, c)."""

    def __init__(self, inputs: int, state: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(inputs, state)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        return self.cell(x, (h, c))


@model("lstm_cell", normal(2, 12), normal(2, 16), normal(2, 16))
def lstm_cell() -> nn.Module:
    return LstmStep(12, 16)


@model("lstm_sequence", normal(2, 5, 12))
def lstm_sequence() -> nn.Module:
    return nn.LSTM(12, 16, batch_first=True)


@model("lstm_bidirectional", normal(2, 4, 8))
def lstm_bidirectional() -> nn.Module:
    return nn.LSTM(8, 8, num_layers=2, bidirectional=True, batch_first=True)


@model("gru_cell", normal(2, 12), normal(2, 16))
def gru_cell() -> nn.Module:
    return nn.GRUCell(12, 16)


@model("gru_sequence", normal(2, 5, 12))
def gru_sequence() -> nn.Module:
    return nn.GRU(12, 16, batch_first=True)


@model("rnn_sequence", normal(2, 5, 12))
def rnn_sequence() -> nn.Module:
    return nn.RNN(12, 16, batch_first=True)
