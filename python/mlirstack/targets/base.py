"""The interface that every target implements, and the wrapper that turns a flat executable into the user's callable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from mlirstack.errors import TargetUnavailableError
from mlirstack.targets.requirements import Requirements

if TYPE_CHECKING:  # a machine that only runs bundles has no MLIR bindings
    import numpy as np
    import torch

    from mlirstack.frontend.program import Program, Signature
    from mlirstack.pipeline.runner import Observer, Payload
    from mlirstack.pipeline.stage import Pipeline


@dataclass(frozen=True)
class Artifact:
    """What a target built: named files and plain-data metadata, all that ``load`` needs on another machine.

    ``files`` maps a file name inside a bundle to its bytes; ``metadata`` is JSON-serialisable.  Parameters are not part of
    it: the caller hands them to ``load``.  ``packed`` is what was made of them ahead, by name, as flat bytes in memory that
    outlives what is loaded; empty where that is left to ``load``.
    """

    target: str
    files: dict[str, bytes]
    metadata: dict[str, Any] = field(default_factory=dict)
    packed: Mapping[str, np.ndarray] = field(default_factory=dict)


class Executable(ABC):
    """A loaded ``@main``: parameters are bound, user inputs are given per call.

    ``device`` is where inputs must be and results are: torch's name of a device.  ``parameters`` are those that were bound,
    where these are other tensors than the ones given (on another device); None otherwise.  ``tf32``: is f32 multiplied as
    TF32, as torch's settings allowed when this was compiled?
    """

    device: str = "cpu"
    tf32: bool = False
    parameters: dict[str, torch.Tensor] | None = None

    @abstractmethod
    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Call with the user's inputs, one per ``kind="input"`` argument in signature order (tensors or Python scalars).

        Inputs have the dtype and a shape of the signature (already checked), permuted to the ``order`` of their argument
        where it has one, and may be non-contiguous.  Returns one value per :attr:`Signature.results` entry, in the order of
        its dimensions that the entry says: tensors that the caller owns, or Python scalars.
        """

    def start(self, inputs: Sequence[Any]) -> Callable[[], list[Any]]:
        """Begin a call; what is returned must be called, waits for the results, and gives them as :meth:`run` does.

        Calls that are begun one after the other may be under way at the same time.  Here, a call is over when it was begun.
        """
        results = self.run(inputs)
        return lambda: results

    def rebound(self, parameters: Mapping[str, torch.Tensor]) -> Executable:
        """The same program bound to other ``parameters``, or to the same whose values have changed; what depends on them is
        prepared anew.  Quicker than loading; NotImplementedError where the target has no such way."""
        raise NotImplementedError(f"{type(self).__name__} is bound once, when it is loaded")

    def source(self, stage: str) -> str:
        """Text of a late stage (``llvmir``, ``asm``, ``ptx``) where the artifact holds it; KeyError otherwise."""
        raise KeyError(stage)


class ArrayExecutable(ABC):
    """An :class:`Executable` that is called with NumPy arrays, for machines without torch; bound in the same way."""

    @abstractmethod
    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """As :meth:`Executable.run`, with arrays in the place of tensors."""


class Target(ABC):
    """A place to run: owns its stage table, builds artifacts, loads them."""

    name: str
    schedules: ClassVar[tuple[str, ...]] = ()  # names that TargetOptions.schedule may have
    settings: ClassVar[tuple[str, ...]] = ()  # keys that TargetOptions.settings may have

    @abstractmethod
    def available(self) -> str | None:
        """None if artifacts of this target can run here, else the reason why not in one line."""

    @abstractmethod
    def pipeline(self, route: str, level: str) -> Pipeline:
        """The stage table for ``route`` ("tosa" or "linalg"), for a module that stands at ``level``."""

    @abstractmethod
    def build(self, program: Program, payload: Payload, observers: Sequence[Observer] = ()) -> Artifact:
        """Turn what the last stage left into an artifact."""

    def figures(self, payload: Payload) -> dict[str, Any]:
        """Numbers about what the last stage left, for the trace of a dump; JSON-serialisable, by default none."""
        return {}

    def requirements(self, artifact: Artifact) -> Requirements:
        """What a machine must have to run ``artifact``, checked before any of its code is loaded; by default nothing."""
        return Requirements()

    def pack(self, artifact: Artifact, signature: Signature, parameters: Mapping[str, torch.Tensor], file: Path) -> Artifact:
        """Do ahead what :meth:`load` would do with ``parameters``: write what comes of them to ``file`` (safetensors), and
        return the artifact that reads it.  No file where there is nothing to do ahead."""
        return artifact

    @abstractmethod
    def load(self, artifact: Artifact, signature: Signature, parameters: dict[str, torch.Tensor]) -> Executable:
        """Load an artifact on this machine; raises TargetUnavailableError with the reason where it cannot."""

    def load_arrays(self, artifact: Artifact, signature: Signature, parameters: Mapping[str, np.ndarray]) -> ArrayExecutable:
        """As :meth:`load`, on a machine without torch; by default there is no such way."""
        raise TargetUnavailableError(f"target '{self.name}' runs with torch only", hint="pip install torch")
