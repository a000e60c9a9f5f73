"""Models whose difficulty is the signature: nested, repeated, passed-through and constant outputs, buffers, mutation."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlirstack.zoo.recipe import integers, listed, model, named, normal, operation, tensor, value


@operation("nested_outputs", normal(4, 8))
def nested_outputs(x: Tensor) -> dict[str, tuple[Tensor, Tensor] | list[Tensor]]:
    return {"sums": (x.sum(0), x.sum(1)), "scaled": [x * 2, x * 3]}


@operation("nested_inputs", named(left=normal(4, 8), right=normal(4, 8)), listed(normal(8), normal(4, 1)))
def nested_inputs(pair: dict[str, Tensor], terms: list[Tensor]) -> Tensor:
    return pair["left"] * pair["right"] + terms[0] - terms[1]


@operation("duplicate_outputs", normal(4, 8))
def duplicate_outputs(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = torch.exp(x)
    return y, y + 1, y


class PassThrough(nn.Module):
    """x → x itself, the scale parameter itself, and their product."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x, self.scale, x * self.scale


@model("pass_through", normal(4, 8))
def pass_through() -> nn.Module:
    return PassThrough()


@operation("constant_outputs", normal(4, 8))
def constant_outputs(x: Tensor) -> tuple[Tensor, None, int, Tensor]:
    return x + 1, None, x.shape[1], torch.arange(8, dtype=torch.float32)


@operation("view_outputs", normal(4, 8))
def view_outputs(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = x * 2
    return x.view(8, 4), y, y.t()


@operation("scalar_inputs", normal(4, 8), value(0.5), value(3), value(True))
def scalar_inputs(x: Tensor, scale: float, power: int, shift: bool) -> Tensor:
    y = (x * scale) ** power
    return y + 1 if shift else y


class TokensAtPositions(nn.Module):
    """Token ids (batch, length) and positions (length,) of int32 → (batch, length, 12)."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(40, 12)
        self.positions = nn.Embedding(16, 12)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return self.tokens(tokens) + self.positions(positions)


@model("integer_inputs", integers(0, 40, 2, 6), integers(0, 16, 6, dtype=torch.int32))
def integer_inputs() -> nn.Module:
    return TokensAtPositions()


class WithTable(nn.Module):
    """x (batch, 8) → x plus a table that ``state_dict`` does not hold."""

    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.linspace(-1.0, 1.0, 8), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table


@model("non_persistent_buffer", normal(4, 8))
def non_persistent_buffer() -> nn.Module:
    return WithTable()


class SharedWeights(nn.Module):
    """An auto-encoder whose decoder is its encoder's transpose; ``alias`` is the same layer under a second name."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(16, 6)
        self.alias = self.encoder

    def forward(self, x: Tensor) -> Tensor:
        code = torch.tanh(self.encoder(x)) + self.alias(x)
        return F.linear(code, self.encoder.weight.t())


@model("shared_weights", normal(4, 16))
def shared_weights() -> nn.Module:
    return SharedWeights()


@operation("zero_dimensional", tensor(0.75), normal(4))
def zero_dimensional(scale: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return (x * scale).sum(), scale + 1


@operation("empty_tensor", normal(0, 4), normal(3, 4))
def empty_tensor(empty: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.cat([empty, x]) * 2, torch.relu(empty)


class CallCounter(nn.Module):
    """x → x times the number of calls so far; the buffer keeps the count."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        return x * self.calls


@model("buffer_update", normal(4, 8))
def buffer_update() -> nn.Module:
    return CallCounter()


@operation("input_update", normal(4, 8), normal(4, 8))
def input_update(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return x + y
