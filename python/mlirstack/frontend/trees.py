"""Text of pytree specs: what :attr:`Signature.in_spec` and ``out_spec`` hold, and back again.

torch writes specs of built-in containers and of registered classes only.  Named tuples, ``torch.return_types`` and
dataclasses that a model returns are written here under their importable name, so that a bundle can rebuild them elsewhere.
"""

from __future__ import annotations

import importlib
import json
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

from torch.utils import _pytree as pytree

from mlirstack.errors import UsageError
from mlirstack.frontend.containers import is_cache, register_cache

_PREFIX = "class:"  # of the names that this module registers


def dumps(spec: pytree.TreeSpec) -> str:
    """The text of ``spec``; :class:`UsageError` if it holds a container that cannot be written."""
    for node_type in _node_types(spec):
        known = pytree.SUPPORTED_SERIALIZED_TYPES.get(node_type)
        if known is None or known.serialized_type_name == pytree.NO_SERIALIZED_TYPE_NAME_FOUND:
            _register(node_type, f"{node_type.__module__}:{node_type.__qualname__}")
    try:
        text: str = pytree.treespec_dumps(spec)
    except TypeError as error:
        raise UsageError(
            f"the model takes or returns a container that has no text form: {error}",
            hint="return a dict, list, tuple or named tuple of tensors",
        ) from error
    return text


def loads(text: str) -> pytree.TreeSpec:
    """The spec that :func:`dumps` wrote; imports the classes it names."""
    for name in _type_names(json.loads(text)):
        if name.startswith(_PREFIX) and name not in pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE:
            _register(_find(name.removeprefix(_PREFIX)), name.removeprefix(_PREFIX))
        elif is_cache(name) and name not in pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE:
            register_cache(name)
    return pytree.treespec_loads(text)


def _node_types(spec: pytree.TreeSpec) -> Iterator[Any]:
    if spec.type is not None:
        yield spec.type
    for child in spec.children():
        yield from _node_types(child)
    if spec.type is namedtuple:  # torch's key for all named tuples; the class itself is the context
        yield spec.context


def _type_names(tree: object) -> Iterator[str]:
    """Every string in the JSON of a spec: a type name stands among them."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from _type_names(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _type_names(value)


def _find(path: str) -> Any:
    module, _, qualname = path.partition(":")
    found: Any = importlib.import_module(module)
    try:
        for part in qualname.split("."):
            found = getattr(found, part)
    except AttributeError:
        raise UsageError(
            f"the class '{path}' of the model's inputs or outputs cannot be found by that name",
            hint="define it at the top of an importable module",
        ) from None
    return found


def _register(node_type: Any, path: str) -> None:
    """Give a class that torch can flatten a name under which it can be found again."""
    name = _PREFIX + path
    pytree.SUPPORTED_SERIALIZED_TYPES[node_type] = pytree._SerializeNodeDef(node_type, name, None, None)
    pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE[name] = node_type
