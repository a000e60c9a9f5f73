"""Containers of model libraries that torch.export does not know: key/value caches that Hugging Face models return."""

from __future__ import annotations

import ast
import importlib
import importlib.util

from torch import nn
from torch.utils import _pytree as pytree

from mlirstack.errors import MissingDependencyError

_CACHES = "transformers.exporters.exporter_dynamo"


def register_containers(model: nn.Module) -> None:
    """Make torch know the caches that ``model`` may return, where it is a model of transformers.

    The registration is the library's own (transformers 5.24 or later); nothing is imported for other models.
    """
    if not any(kind.__module__.startswith("transformers.") for kind in type(model).__mro__):
        return
    if importlib.util.find_spec(_CACHES) is not None:
        importlib.import_module(_CACHES).register_cache_pytrees_for_model(model)
        _keep_keys()


def is_cache(name: str) -> bool:
    """Is ``name`` one under which such a cache stands in the text of a tree: ``transformers.cache_utils:DynamicCache``?"""
    return name.startswith("transformers.") and ":" in name


def register_cache(name: str) -> None:
    """Make torch know a cache by its name, in a process that has not seen its model."""
    module, _, path = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), path)
        importlib.import_module(_CACHES).register_pytree_node(found)
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"the model takes or returns a '{path}' of transformers, which is not installed", hint="pip install transformers"
        ) from error
    _keep_keys()


def _keep_keys() -> None:
    """Write what torch keeps of a cache as Python text: JSON would make text of numbers that dictionaries have as keys."""
    for kind, known in list(pytree.SUPPORTED_SERIALIZED_TYPES.items()):
        name = known.serialized_type_name
        if is_cache(name) and known.to_dumpable_context is None:
            pytree.SUPPORTED_SERIALIZED_TYPES[kind] = pytree._SerializeNodeDef(kind, name, repr, ast.literal_eval)
