"""torch.compile with Inductor as a candidate of a comparison, in any of its modes, with the seconds that compiling took.

These are of compiling cold, with none of its caches.  Its start-up for a device (imports, worker processes; on a processor
probing the instruction set and precompiling headers), paid once per process or machine, is done before the clock starts.
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
from torch.utils import _pytree as pytree

from mlirstack.errors import MlirstackError, TargetUnavailableError, UsageError

DEFAULT_MODE = "default"


class InductorError(MlirstackError):
    """Inductor could not compile the model."""


@dataclass(frozen=True)
class InductorFunction:
    """A compiled model; ``compile_s`` includes the first call, in which Inductor does its work, and says little of compiling
    where caches may be used."""

    function: Callable[..., Any]
    compile_s: float
    route: str | None = None

    def __call__(self, *inputs: Any) -> Any:
        with torch.no_grad():
            return self.function(*inputs)


def compile_inductor(
    module: nn.Module,
    inputs: Sequence[Any],
    *,
    dynamic: bool = False,
    mode: str = DEFAULT_MODE,
    cached: bool = False,
    keep: bool = False,
) -> InductorFunction:
    """Compile ``module``, which is called with ``inputs`` once and must not be used elsewhere.

    ``mode`` is torch.compile's.  ``cached``: what Inductor has compiled and tuned before, in any process, is taken from its
    caches.  What this process compiled before is forgotten, unless told to ``keep`` it.  Raises
    :class:`TargetUnavailableError` where Inductor has no C++ compiler, :class:`InductorError` where it fails.
    """
    reason = unavailable()
    if reason:
        raise TargetUnavailableError(f"Inductor: {reason}", hint="apt install g++ python3-dev")
    start_up(_device(module, inputs))
    if not keep:
        torch._dynamo.reset()
    function = torch.compile(module, dynamic=True if dynamic else None, mode=mode)
    with _quiet() if cached else _cold(), torch.no_grad():
        started = time.perf_counter()
        try:
            function(*inputs)
        except RuntimeError as error:  # the base of Dynamo's and Inductor's exceptions
            raise InductorError(f"Inductor: {type(error).__name__}: {_first_line(error)}") from error
        return InductorFunction(function, time.perf_counter() - started)


def check_modes(modes: Sequence[str]) -> None:
    """:class:`UsageError` for what is no mode of torch.compile."""
    known = list(torch._inductor.list_mode_options())
    for mode in modes:
        if mode not in known:
            raise UsageError(f"torch.compile has no mode '{mode}'", hint=f"modes: {', '.join(known)}")


def _device(module: nn.Module, inputs: Sequence[Any]) -> str:
    """The kind of device that the model is on; without any tensor, the processor."""
    tensors = (*pytree.tree_leaves(tuple(inputs)), *module.parameters(), *module.buffers())
    return next((tensor.device.type for tensor in tensors if isinstance(tensor, torch.Tensor)), "cpu")


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
def start_up(device: str = "cpu") -> None:
    """Compile something small for a kind of device, so that what follows does not pay for imports and probes."""
    with _quiet(), torch.no_grad():
        torch.compile(lambda x: torch.relu(x + 1))(torch.zeros(64, device=device))
    with _cold(), torch.no_grad():
        torch.compile(lambda x: torch.relu(x - 1))(torch.zeros(64, device=device))


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
