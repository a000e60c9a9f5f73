"""Small models for the torch.compile backend, each with what it is there for, and their comparison with eager."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils import _pytree as pytree


class Call(nn.Module):
    """A function over named layers: ``Call(lambda m, x: m.fc(x) + 1, fc=nn.Linear(8, 8))``."""

    def __init__(self, function: Callable[..., Any], **layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


class Counter(nn.Module):
    """A buffer that forward adds to."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(x.mean(0))
        return self.fc(x) + self.seen


class Attention(nn.Module):
    """Causal self-attention, 2 heads of 8, as people write it."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        heads = [t.view(batch, length, 2, 8).transpose(1, 2) for t in self.qkv(x).chunk(3, -1)]
        attended = functional.scaled_dot_product_attention(*heads, is_causal=True)
        return self.out(attended.transpose(1, 2).reshape(batch, length, width))


def linear() -> nn.Linear:
    return nn.Linear(8, 8)


def rows(count: int = 5) -> torch.Tensor:
    return torch.randn(count, 8)


def _cross_entropy(m: Any, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(m.fc(m.embedding(tokens)).flatten(0, 1), labels.flatten())


def _twice(m: Any, x: torch.Tensor) -> Any:
    y = m.fc(x)
    return y, y, {"turned": y.t(), "nothing": None}


def _in_place(m: Any, x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return m.fc(x)


def _autocast(m: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast(x.device.type, torch.bfloat16):
        return functional.gelu(m.fc(x)).float()


def _saved_and_overwritten(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = m.fc(x + 0).sigmoid()
    x.mul_(2)
    return y * x


@dataclass(frozen=True)
class Case:
    """A model and inputs, built anew by each call; ``inputs`` gives a list of tensors and Python values."""

    model: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Any, ...]]
    tolerance: float = 2e-5


CASES: dict[str, Case] = {
    "mlp": Case(lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)), lambda: (rows(),)),
    "norms": Case(lambda: nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Softmax(-1)), lambda: (rows(),)),
    "batch_norm": Case(
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        lambda: (torch.randn(2, 3, 8, 8),),
    ),
    "depthwise": Case(
        lambda: nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.ReLU(), nn.Conv2d(4, 8, 3, groups=2)),
        lambda: (torch.randn(2, 4, 5, 5, requires_grad=True),),
    ),
    "max_pool": Case(
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)), lambda: (torch.randn(2, 3, 8, 8),)
    ),
    "average_pool": Case(
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.AvgPool2d(3, 2, 1), nn.AdaptiveAvgPool2d((3, 2))),
        lambda: (torch.randn(2, 3, 10, 9),),
    ),
    "mutated_buffer": Case(Counter, lambda: (rows(),)),
    "mutated_argument": Case(lambda: Call(_in_place, fc=linear()), lambda: (rows(),)),
    "saved_and_overwritten": Case(lambda: Call(_saved_and_overwritten, fc=linear()), lambda: (rows(),)),
    "view_of_input": Case(lambda: Call(lambda m, x: (x.view(8, 5), m.fc(x)), fc=linear()), lambda: (rows(),)),
    "one_result_twice": Case(lambda: Call(_twice, fc=linear()), lambda: (rows(),)),
    "integer_argument": Case(lambda: Call(lambda m, x, n: m.fc(x) * n, fc=linear()), lambda: (rows(), 3)),
    "number_and_boolean_results": Case(
        lambda: Call(lambda m, x: (m.fc(x), x > 0, (x > 0).sum(), 3), fc=linear()), lambda: (rows(),)
    ),
    "strided_argument": Case(lambda: Call(lambda m, x: m.fc(x), fc=linear()), lambda: (torch.randn(8, 5).t(),)),
    "cross_entropy": Case(
        lambda: Call(_cross_entropy, embedding=nn.Embedding(11, 8, padding_idx=0), fc=nn.Linear(8, 11)),
        lambda: (torch.randint(0, 11, (2, 3)), torch.randint(0, 11, (2, 3))),
    ),
    "attention": Case(Attention, lambda: (torch.randn(2, 6, 16),)),
    "autocast": Case(lambda: Call(_autocast, fc=linear()), lambda: (rows(),), tolerance=2e-2),
}


def check_against_eager(case: Case, compiled: nn.Module, eager: nn.Module, device: str = "cpu") -> None:
    """Results, their strides, gradients, mutated arguments and buffers of a training step of both models on ``device``."""
    inputs = pytree.tree_map_only(
        torch.Tensor, lambda x: x.detach().to(device).requires_grad_(x.requires_grad), case.inputs()
    )
    given, expected_inputs = copy.deepcopy(inputs), copy.deepcopy(inputs)
    results, expected = compiled(*given), eager(*expected_inputs)
    assert pytree.tree_structure(results) == pytree.tree_structure(expected)
    for result, wanted in zip(pytree.tree_leaves(results), pytree.tree_leaves(expected), strict=True):
        if isinstance(wanted, torch.Tensor):
            torch.testing.assert_close(result, wanted, rtol=case.tolerance, atol=case.tolerance, check_stride=True)
        else:
            assert result == wanted
    _loss(results).backward()
    _loss(expected).backward()
    for (name, parameter), wanted in zip(compiled.named_parameters(), eager.parameters(), strict=True):
        assert parameter.grad is not None, name
        torch.testing.assert_close(parameter.grad, wanted.grad, rtol=10 * case.tolerance, atol=10 * case.tolerance)
    torch.testing.assert_close(list(compiled.buffers()), list(eager.buffers()))
    torch.testing.assert_close(given, expected_inputs)


def classifier() -> nn.Module:
    """A perceptron: [batch, 8] to 4 classes."""
    return nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4))


def convolutions() -> nn.Module:
    """Convolution with batch norm and pooling: [batch, 8] to 4 classes."""
    return nn.Sequential(
        nn.Unflatten(1, (2, 2, 2)),
        nn.Conv2d(2, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8, 4),
    )


def transformer() -> nn.Module:
    """One encoder layer: [batch, 8] to 4 classes."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Unflatten(1, (2, 4)), nn.Linear(4, 8), layer, nn.Flatten(), nn.Linear(16, 4))


TRAINED = (classifier, convolutions, transformer)


def losses_of_training(
    model: nn.Module, called: Callable[..., torch.Tensor], kind: type[torch.optim.Optimizer], device: str = "cpu"
) -> list[float]:
    """The losses of twenty steps on batches that are always the same; ``called`` is the model, compiled or not."""
    generator = torch.Generator().manual_seed(1)
    optimizer = kind(model.parameters(), lr=1e-2)  # type: ignore[call-arg]
    losses = []
    for _ in range(20):
        x = torch.randn(16, 8, generator=generator).to(device)
        label = torch.randint(0, 4, (16,), generator=generator).to(device)
        optimizer.zero_grad()
        loss = functional.cross_entropy(called(x), label)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _loss(results: Any) -> torch.Tensor:
    leaves = [leaf for leaf in pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    return torch.stack([leaf.float().square().sum() for leaf in leaves]).sum()
