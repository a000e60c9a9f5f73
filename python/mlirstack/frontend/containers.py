"""Containers of model libraries that torch.export does not know: key/value caches that Hugging Face models return."""

from __future__ import annotations

import importlib
import importlib.util

from torch import nn

_CACHES = "transformers.exporters.exporter_dynamo"


def register_containers(model: nn.Module) -> None:
    """Make torch know the caches that ``model`` may return, where it is a model of transformers.

    The registration is the library's own (transformers 5.24 or later); nothing is imported for other models.
    """
    if not any(kind.__module__.startswith("transformers.") for kind in type(model).__mro__):
        return
    if importlib.util.find_spec(_CACHES) is not None:
        importlib.import_module(_CACHES).register_cache_pytrees_for_model(model)
