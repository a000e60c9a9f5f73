"""A compiled graph whose parameters rarely change: what depends on them alone is prepared once, and again when they do.

Under torch.compile parameters are inputs of the graph, and an optimizer may write to them between two calls.  torch counts
the writes to a tensor in its version counter; a call with the same tensors at the same versions needs no preparation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from mlirstack.targets.base import Executable

Load = Callable[[Mapping[str, torch.Tensor]], Executable]


@dataclass(frozen=True)
class _Bound:
    """An executable, the state of the parameters that it was prepared for, and these: while they are held, no other tensor
    gets their memory."""

    executable: Executable
    state: tuple[tuple[int, int], ...]
    parameters: Mapping[str, torch.Tensor]


class WatchedProgram:
    """Runs a program with the parameters of each call.  ``load`` gives an executable bound to parameters; ``constants`` are
    parameters that belong to the program.

    Writes that torch does not count go unnoticed: those through ``.data``, and through arrays that share the memory.
    ``preparations`` counts how often parameters were new.
    """

    device: ClassVar[str] = "cpu"

    def __init__(self, load: Load, constants: Mapping[str, torch.Tensor]) -> None:
        self._load, self._constants = load, constants
        self._bound: _Bound | None = None
        self.preparations = 0

    def run(self, parameters: Mapping[str, torch.Tensor], inputs: Sequence[Any]) -> list[Any]:
        """See :meth:`Executable.run`; safe to call from several threads, each of which uses what it has found bound."""
        state = _state(parameters)
        bound = self._bound
        if bound is None or state is None or bound.state != state:
            held = {name: tensor.detach() for name, tensor in parameters.items()}
            loaded = self._load(held) if bound is None else bound.executable.rebound({**self._constants, **held})
            bound = _Bound(loaded, state or (), held)
            self._bound = bound
            self.preparations += 1
        return bound.executable.run(inputs)


def _state(parameters: Mapping[str, torch.Tensor]) -> tuple[tuple[int, int], ...] | None:
    """Address and version of each tensor; None where one has no version: tensors made in inference mode."""
    if any(tensor.is_inference() for tensor in parameters.values()):
        return None
    return tuple((tensor.data_ptr(), tensor._version) for tensor in parameters.values())
