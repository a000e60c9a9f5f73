"""Models that are called with keyword arguments, as modules that take positional inputs only."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from mlirstack.compare.accuracy import moved
from mlirstack.errors import UsageError


class WithKeywords(torch.nn.Module):
    """``model(*args, **keywords)`` as a module of ``args`` alone."""

    def __init__(self, model: torch.nn.Module, keywords: Mapping[str, Any]) -> None:
        super().__init__()
        self.model = model
        self.keywords = dict(keywords)

    def forward(self, *args: Any) -> Any:
        """Call the model."""
        return self.model(*args, **self.keywords)


def bound(function: Callable[..., Any], keywords: Mapping[str, Any], device: str) -> Callable[..., Any]:
    """What was compiled with ``keywords`` as a function of positional inputs only, which are on ``device``."""
    return functools.partial(function, **moved(dict(keywords), device)) if keywords else function


def positional(model: Callable[..., Any], keywords: Mapping[str, Any]) -> torch.nn.Module:
    """``model`` itself where there are no ``keywords``; :class:`UsageError` where it is no module."""
    if not isinstance(model, torch.nn.Module):
        raise UsageError(f"a {type(model).__name__} is no module that eager could run in higher precision")
    return WithKeywords(model, keywords) if keywords else model
