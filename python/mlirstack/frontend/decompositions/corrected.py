"""Operators whose decomposition, torch's or torch-mlir's, is not what eager computes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from mlirstack.frontend.decompositions.extend import Decomposition

aten = torch.ops.aten

_MEAN_OF_ALL, _SUM_OF_ALL = 1, 2  # torch's numbers of reductions


def add_corrected_decompositions(table: dict[Any, Decomposition]) -> None:
    """Replace the entries of ``table``."""
    table[aten.isclose.default] = _isclose
    table[aten.multilabel_margin_loss_forward.default] = _multilabel_margin_loss


def _isclose(x: Tensor, y: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    """Equal, or a finite distance apart that is allowed; torch-mlir's has all that is finite close to infinity."""
    if x.is_complex():
        return NotImplemented
    close = x == y
    if equal_nan and x.is_floating_point():
        close = close | (x.isnan() & y.isnan())
    if rtol == 0 and atol == 0:
        return close
    wide = y if y.is_floating_point() else y.to(torch.get_default_dtype())
    distance = (x.to(wide.dtype) - wide).abs()
    return close | ((distance < math.inf) & (distance <= atol + (rtol * wide).abs()))


def _multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """For scores ``x`` and labels ``target`` of ``[classes]`` or ``[n, classes]``: the margins between the labels before the
    first -1 and all classes that are none; torch's also counts a margin for each place after it."""
    scores, labels = aten.atleast_2d.default(x), aten.atleast_2d.default(target)
    classes = scores.shape[1]
    places = torch.arange(classes, device=target.device)
    end = torch.where(labels == -1, places, classes).amin(-1, keepdim=True)
    counts = places < end
    of_labels = scores.gather(-1, torch.where(counts, labels, 0))
    is_label = (places == torch.where(counts, labels, -1).unsqueeze(-1)).any(1)
    margins = (1.0 - of_labels.unsqueeze(-1) + scores.unsqueeze(-2)).clamp_min(0)
    decides = counts.unsqueeze(-1) & ~is_label.unsqueeze(-2)
    loss = torch.where(decides, margins, 0).sum((-2, -1)) / classes
    if reduction == _MEAN_OF_ALL:
        loss = loss.mean()
    elif reduction == _SUM_OF_ALL:
        loss = loss.sum()
    elif x.dim() < 2:
        loss = loss.squeeze(0)
    return loss, is_label.to(x.dtype).reshape(target.shape)
