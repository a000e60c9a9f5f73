"""Text of pytree specs: what :attr:`Signature.in_spec` and ``out_spec`` hold, and back again; calls of a spec.

torch writes specs of built-in containers and of registered classes only.  Named tuples, ``torch.return_types`` and
dataclasses that a model returns are written here under their importable name, so that a bundle can rebuild them elsewhere.
"""

from __future__ import annotations

import importlib
import json
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from mlirstack.errors import UsageError
from mlirstack.frontend.containers import is_cache, register_cache
from mlirstack.frontend.keys import decoded_key, encoded_key

_PREFIX = "class:"  # of the names that this module registers


def dumps(spec: pytree.TreeSpec) -> str:
    """The text of ``spec``; :class:`UsageError` if it holds a container that cannot be written."""
    for node_type in _node_types(spec):
        known = pytree.SUPPORTED_SERIALIZED_TYPES.get(node_type)
        if known is None or known.serialized_type_name == pytree.NO_SERIALIZED_TYPE_NAME_FOUND:
            _register(node_type, f"{node_type.__module__}:{node_type.__qualname__}")
    try:
        text: str = pytree.treespec_dumps(_with_keys(spec, encoded_key))
    except TypeError as error:
        raise UsageError(
            f"the model takes or returns a container that has no text form: {error}",
            hint="return a dict, list, tuple or named tuple of tensors; keys are text, numbers, None or tuples of these",
        ) from error
    return text


def loads(text: str) -> pytree.TreeSpec:
    """The spec that :func:`dumps` wrote; imports the classes it names."""
    for name in _type_names(json.loads(text)):
        if name.startswith(_PREFIX) and name not in pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE:
            _register(_find(name.removeprefix(_PREFIX)), name.removeprefix(_PREFIX))
        elif is_cache(name) and name not in pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE:
            register_cache(name)
    return _with_keys(pytree.treespec_loads(text), decoded_key)


def leaves_as(spec: pytree.TreeSpec, value: Any) -> list[Any] | None:
    """The leaves of ``value`` in the order of ``spec``; None where it is built otherwise.

    Dictionaries have the same keys in any order, as two equal ones have; the order of an ``OrderedDict`` is its own.  A
    ``torch.Size`` is the tuple for which torch.export takes it.
    """
    found: list[Any] = []
    return found if _gather(spec, value, found) else None


def _gather(spec: pytree.TreeSpec, value: Any, found: list[Any]) -> bool:
    kind = pytree._get_node_type(value)
    if spec.is_leaf():
        found.append(value)
        return kind not in pytree.SUPPORTED_NODES
    if kind is torch.Size and spec.type is tuple:
        kind = tuple
    if kind is not spec.type:
        return False
    members, context = pytree.SUPPORTED_NODES[kind].flatten_fn(value)
    if kind in (dict, defaultdict):
        keys = _keys(spec)
        if len(value) != len(keys) or any(key not in value for key in keys):
            return False
        if kind is defaultdict and context[0] is not spec.context[0]:
            return False
        members = [value[key] for key in keys]
    elif context != spec.context:
        return False
    children = spec.children()
    return len(members) == len(children) and all(_gather(c, m, found) for c, m in zip(children, members, strict=True))


def _keys(spec: pytree.TreeSpec) -> list[Any]:
    """The keys of a dictionary's ``spec``, in order."""
    keys: list[Any] = spec.context[1] if spec.type is defaultdict else spec.context
    return keys


def _with_keys(spec: pytree.TreeSpec, change: Callable[[Any], Any]) -> pytree.TreeSpec:
    """``spec`` with each key of its dictionaries changed."""
    if spec.is_leaf():
        return spec
    context = spec.context
    if spec.type in (dict, OrderedDict, defaultdict):
        keys = [change(key) for key in _keys(spec)]
        context = [_importable(spec.context[0]), keys] if spec.type is defaultdict else keys
    return pytree.TreeSpec(spec.type, context, [_with_keys(child, change) for child in spec.children()])


def _importable(factory: Any) -> Any:
    """``factory`` of a ``defaultdict``, which a spec holds by its name; :class:`UsageError` if it has none."""
    module = importlib.import_module(getattr(factory, "__module__", None) or "builtins")
    if factory is None or getattr(module, getattr(factory, "__qualname__", ""), None) is not factory:
        raise UsageError(
            f"the model takes or returns a defaultdict of '{factory!r}', which cannot be found by a name",
            hint="return a dict, or let the factory be a class or function at the top of a module",
        )
    return factory


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
