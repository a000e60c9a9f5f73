"""The models that compile times are measured with, by name: those of the zoo, and two of the size that people deploy.

Each is built from a seed; nothing is downloaded.  The large ones are not in the zoo, which every test run goes through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlirstack import zoo
from mlirstack.zoo.transformer import Attention
from mlirstack.zoo.vision import ResNet18


@dataclass(frozen=True)
class Bert:
    """Sizes of a BERT encoder (Devlin et al., 2019); the defaults are those of BERT-base."""

    vocabulary: int = 30522
    positions: int = 512
    width: int = 768
    heads: int = 12
    layers: int = 12
    hidden: int = 3072


class BertLayer(nn.Module):
    """Post-norm encoder layer, (batch, length, width) → the same."""

    def __init__(self, sizes: Bert) -> None:
        super().__init__()
        self.attention = Attention(sizes.width, sizes.heads)
        self.attention_norm, self.output_norm = nn.LayerNorm(sizes.width, eps=1e-12), nn.LayerNorm(sizes.width, eps=1e-12)
        self.up, self.down = nn.Linear(sizes.width, sizes.hidden), nn.Linear(sizes.hidden, sizes.width)

    def forward(self, x: Tensor) -> Tensor:
        """Attention and a hidden layer, each added and normalized."""
        x = self.attention_norm(x + self.attention(x))
        return self.output_norm(x + self.down(F.gelu(self.up(x))))


class BertEncoder(nn.Module):
    """Token ids (batch, length) → (batch, length, width)."""

    def __init__(self, sizes: Bert) -> None:
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocabulary, sizes.width)
        self.positions = nn.Embedding(sizes.positions, sizes.width)
        self.norm = nn.LayerNorm(sizes.width, eps=1e-12)
        self.layers = nn.ModuleList(BertLayer(sizes) for _ in range(sizes.layers))

    def forward(self, tokens: Tensor) -> Tensor:
        """Embed, then all layers."""
        x = self.norm(self.tokens(tokens) + self.positions.weight[: tokens.shape[1]])
        for layer in self.layers:
            x = layer(x)
        return x


@dataclass(frozen=True)
class CompileCase:
    """A model, the inputs it is compiled for, and its dynamic dimensions."""

    module: nn.Module
    inputs: tuple[Any, ...]
    dynamic_shapes: Any = None

    @property
    def parameter_bytes(self) -> int:
        """Bytes of parameters and buffers."""
        tensors = [*self.module.parameters(), *self.module.buffers()]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def compile_case(name: str) -> CompileCase:
    """``resnet18_224``, ``bert_base``, or a name of the zoo."""
    if name not in ("resnet18_224", "bert_base"):
        model = zoo.get(name)
        return CompileCase(model.module, model.inputs, model.dynamic_shapes)
    torch.manual_seed(0)
    if name == "resnet18_224":
        return CompileCase(ResNet18().eval(), (torch.randn(1, 3, 224, 224),))
    return CompileCase(BertEncoder(Bert()).eval(), (torch.randint(0, Bert().vocabulary, (1, 128)),))
