"""torch.compile with Inductor as a candidate of a comparison: compiled cold, with the seconds that took.

Cold means that none of its caches is used.  Its start-up (imports, probing the instruction set, precompiling headers), paid
once per process or machine, is done before the clock starts.
"""

from __future__ import annotations

import sysconfig
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mlirstack.errors import MlirstackError, TargetUnavailableError


class InductorError(MlirstackError):
    """Inductor could not compile the model."""


@dataclass(frozen=True)
class InductorFunction:
    """A compiled model; ``compile_s`` includes the first call, in which Inductor does its work."""

    function: Callable[..., Any]
    compile_s: float
    route: str | None = None

    def __call__(self, *inputs: Any) -> Any:
        with torch.no_grad():
            return self.function(*inputs)


def compile_inductor(module: nn.Module, inputs: Sequence[Any], *, dynamic: bool = False) -> InductorFunction:
    """Compile ``module``, which is called with ``inputs`` once and must not be used elsewhere.

    Raises :class:`TargetUnavailableError` where Inductor has no C++ compiler, :class:`InductorError` where it fails.
    """
    reason = unavailable()
    if reason:
        raise TargetUnavailableError(f"Inductor: {reason}", hint="apt install g++ python3-dev")
    start_up()
    torch._dynamo.reset()
    function = torch.compile(module, dynamic=True if dynamic else None)
    with _cold(), torch.no_grad():
        started = time.perf_counter()
        try:
            function(*inputs)
        except RuntimeError as error:  # the base of Dynamo's and Inductor's exceptions
            raise InductorError(f"Inductor: {type(error).__name__}: {_first_line(error)}") from error
        return InductorFunction(function, time.perf_counter() - started)


@cache
def unavailable() -> str | None:
    """Why Inductor cannot compile for the CPU here, or None."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return "no C++ compiler found"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return None if header.is_file() else f"Python's C headers are not installed ({header})"


@cache
def start_up() -> None:
    """Compile something small, so that what follows does not pay for imports and probes."""
    with _quiet(), torch.no_grad():
        torch.compile(lambda x: torch.relu(x + 1))(torch.zeros(64))
    with _cold(), torch.no_grad():
        torch.compile(lambda x: torch.relu(x - 1))(torch.zeros(64))


@contextmanager
def _cold() -> Iterator[None]:
    from torch._inductor import config
    from torch._inductor.utils import fresh_cache

    with _quiet(), fresh_cache(), config.patch(force_disable_caches=True):
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else "no message"
