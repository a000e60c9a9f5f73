"""Loss functions; all but one give a zero-dimensional tensor."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlirstack.zoo.recipe import booleans, integers, model, normal, operation

CLASSES = 10


@operation("cross_entropy", normal(8, CLASSES), integers(0, CLASSES, 8))
def cross_entropy(logits: Tensor, classes: Tensor) -> Tensor:
    return F.cross_entropy(logits, classes)


class SmoothedCrossEntropy(nn.Module):
    """Logits (batch, classes) and class indices (batch,); class 0 is ignored."""

    weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.rand(CLASSES) + 0.5)

    def forward(self, logits: Tensor, classes: Tensor) -> Tensor:
        return F.cross_entropy(logits, classes, self.weight, ignore_index=0, label_smoothing=0.1)


@model("cross_entropy_smoothed", normal(8, CLASSES), integers(0, CLASSES, 8))
def cross_entropy_smoothed() -> nn.Module:
    return SmoothedCrossEntropy()


@operation("nll_loss", normal(8, CLASSES), integers(0, CLASSES, 8))
def nll_loss(logits: Tensor, classes: Tensor) -> Tensor:
    return F.nll_loss(torch.log_softmax(logits, dim=-1), classes, reduction="none")


@operation("mse_loss", normal(8, 12), normal(8, 12))
def mse_loss(prediction: Tensor, target: Tensor) -> Tensor:
    return F.mse_loss(prediction, target)


@operation("kl_divergence", normal(8, 12), normal(8, 12))
def kl_divergence(prediction: Tensor, target: Tensor) -> Tensor:
    log_probabilities = torch.log_softmax(prediction, dim=-1)
    return F.kl_div(log_probabilities, torch.softmax(target, dim=-1), reduction="batchmean")


@operation("binary_cross_entropy", normal(8, 12), booleans(8, 12))
def binary_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))


@operation("huber_loss", normal(8, 12, scale=2.0), normal(8, 12, scale=2.0))
def huber_loss(prediction: Tensor, target: Tensor) -> Tensor:
    return F.huber_loss(prediction, target, delta=0.5) + F.smooth_l1_loss(prediction, target, beta=2.0)


@operation("cosine_similarity", normal(8, 12), normal(8, 12))
def cosine_similarity(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    similarity = F.cosine_similarity(x, y, dim=-1)
    return similarity, (1 - similarity).mean()
