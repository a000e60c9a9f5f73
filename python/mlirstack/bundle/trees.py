"""Structures of inputs and outputs without torch: the text of a pytree spec, flattened and rebuilt.

Signatures hold what ``torch.utils._pytree.treespec_dumps`` wrote.  Tuples, lists and dictionaries are understood here;
anything else needs torch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mlirstack.errors import BundleError, SignatureError
from mlirstack.frontend.keys import decoded_key

_TUPLE, _LIST, _DICT = "builtins.tuple", "builtins.list", "builtins.dict"


@dataclass(frozen=True)
class Tree:
    """A node: ``kind`` None is a leaf, else torch's name of the container; ``keys`` are those of a dictionary."""

    kind: str | None
    children: tuple[Tree, ...] = ()
    keys: tuple[Any, ...] = ()

    @property
    def leaf_count(self) -> int:
        """How many leaves lie below."""
        return 1 if self.kind is None else sum(child.leaf_count for child in self.children)


def parse(text: str) -> Tree:
    """The tree of a spec's text; :class:`BundleError` where it holds a container that only torch knows."""
    _, data = json.loads(text)
    return _parse(data)


def _parse(data: dict[str, Any]) -> Tree:
    kind = data["type"]
    if kind not in (None, _TUPLE, _LIST, _DICT):
        raise BundleError(f"the model's inputs or outputs hold a '{kind}', which needs torch", hint="pip install torch")
    children = tuple(_parse(child) for child in data["children_spec"])
    keys = tuple(decoded_key(key) for key in json.loads(data["context"])) if kind == _DICT else ()
    if any(isinstance(key, dict) for key in keys):
        raise BundleError("the model's inputs or outputs have keys of a class, which needs torch", hint="pip install torch")
    return Tree(kind, children, keys)


def flatten(tree: Tree, value: Any) -> list[Any]:
    """The leaves of ``value``; :class:`SignatureError` where it is built otherwise."""
    return list(_leaves(tree, value))


def _leaves(tree: Tree, value: Any) -> Iterator[Any]:
    if tree.kind is None:
        yield value
        return
    if tree.kind == _DICT:
        if not isinstance(value, dict) or set(value) != set(tree.keys):
            given = ", ".join(sorted(map(str, value))) if isinstance(value, dict) else type(value).__name__
            wanted = ", ".join(map(str, tree.keys))
            raise SignatureError(f"expected the keys {wanted or '(none)'}, given: {given or '(none)'}")
        members: list[Any] = [value[key] for key in tree.keys]
    else:
        sequence = tuple if tree.kind == _TUPLE else list
        if not isinstance(value, sequence) or len(value) != len(tree.children):
            count = len(value) if isinstance(value, (tuple, list)) else 1
            raise SignatureError(f"the model takes {len(tree.children)} value(s) here, {count} given")
        members = list(value)
    for child, member in zip(tree.children, members, strict=True):
        yield from _leaves(child, member)


def unflatten(tree: Tree, leaves: Iterator[Any]) -> Any:
    """The value with the given leaves, in order."""
    if tree.kind is None:
        return next(leaves)
    members = [unflatten(child, leaves) for child in tree.children]
    if tree.kind == _DICT:
        return dict(zip(tree.keys, members, strict=True))
    return tuple(members) if tree.kind == _TUPLE else members
