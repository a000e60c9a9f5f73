"""The process that judges timm's models, one at a time: whatever kills it costs one model.

The question is a model's name, what it is built with and the target; null asks for timm's version.
``benchmarks/timm_models.py`` asks.
"""

from __future__ import annotations

import warnings
from typing import Any

import timm
import torch

import mlirstack as ms
from mlirstack.supervised import Tell, serve

_SMALL = (64, 64)  # of images, for models that take any size
_CLASSES = 10


def judge(question: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """``verdict``: pass, wrong, error (it is refused, or fails), cannot (timm builds no such model, or eager does not run
    it); the route, and the relative error or the reason."""
    tell("build")
    torch.manual_seed(0)
    try:
        model = timm.create_model(question["model"], pretrained=False, num_classes=_CLASSES, **question["arguments"]).eval()
        inputs = (torch.randn(1, 3, *_size(model, question["size"])),)
        with torch.no_grad():
            model(*inputs)
    except (RuntimeError, TypeError, ValueError, AssertionError) as error:
        return {"verdict": "cannot", "reason": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    tell("compare")
    result = ms.compare(model, inputs, targets=(question["target"],))[question["target"]]
    if result.status == "ok":
        return {"verdict": "pass", "route": result.route, "rel_l2": result.rel_l2}
    verdict = "wrong" if result.status == "mismatch" else "error"
    return {"verdict": verdict, "route": result.route, "reason": " ".join(str(result.error or result.rel_l2).split())[:300]}


def _size(model: torch.nn.Module, asked: int | None) -> tuple[int, int]:
    """Height and width: what was asked for, the model's own where it takes no other, else small ones."""
    if asked is not None:
        return asked, asked
    settings: Any = model.default_cfg
    return tuple(settings["input_size"][1:]) if settings.get("fixed_input_size") else _SMALL


def _answer(question: dict[str, Any] | None, tell: Tell) -> Any:
    return timm.__version__ if question is None else judge(question, tell)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    serve(_answer)
