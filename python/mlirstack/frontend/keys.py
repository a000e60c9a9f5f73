"""Keys of dictionaries as JSON has them: tuples, which JSON would make lists of, are objects.  Needs no torch."""

from __future__ import annotations

from typing import Any

_TUPLE = "tuple"


def encoded_key(key: Any) -> Any:
    """``key`` as what JSON keeps: ``("w", 1)`` is ``{"tuple": ["w", 1]}``; others are as they are."""
    return {_TUPLE: [encoded_key(part) for part in key]} if type(key) is tuple else key


def decoded_key(key: Any) -> Any:
    """The key that :func:`encoded_key` wrote."""
    if isinstance(key, dict) and set(key) == {_TUPLE}:
        return tuple(decoded_key(part) for part in key[_TUPLE])
    return key
