"""Targets against eager: accuracy, compile time, run time, and what is known not to work.

The package is callable: ``mlirstack.compare(model, inputs, targets=[…])`` is the Python interface, and ``mlirstack.compare``
is also this package's name.  One of the two would hide the other, so the package passes the call on to the interface.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    """The package, answering calls with :func:`mlirstack.api.compare`, which stands above it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return importlib.import_module("mlirstack.api").compare(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
