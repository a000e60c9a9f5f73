"""Runs the encoder of a module: what depends on parameters alone is computed once, into an archive that the module reads.

The encoder is a vmfb that IREE's compiler has split off; it names the entries of the archive, with their sizes, and fills
them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import iree.runtime as rt
import numpy as np

from mlirstack.errors import PipelineError
from mlirstack.frontend.parameters import TensorSpec, create_tensors
from mlirstack.passes.iree.archive import ENCODER, PACKED, SCOPE
from mlirstack.targets.base import Artifact
from mlirstack.targets.iree.session import Packed, archive, first_line, instance, processor
from mlirstack.targets.iree.views import aligned_bytes

_INDICES, _STEPS, _ENCODE = (f"__encode_parameter{name}_all" for name in ("_indices", "_steps", "s"))
_SPLAT = 0  # kind of an entry that is one pattern all over; others are data


@dataclass(frozen=True)
class Entry:
    """An entry of the archive: its bytes, and what they are where the encoder does not compute them."""

    size: int
    pattern: bytes | None = None


class Encoder:
    """A loaded encoder; ``provide(name)`` gives the bytes of a parameter, of those ``names``, as a flat aligned array."""

    def __init__(self, vmfb: bytes, names: Collection[str], provide: Callable[[str], np.ndarray]) -> None:
        given = {name: provide(name) for name in names}
        self._given = {name: contents for name, contents in given.items() if contents.size}
        self._packed = rt.ParameterIndex()
        self._device = processor(1)
        try:
            parameters = rt.create_io_parameters_module(
                instance(), archive(self._given).create_provider(SCOPE), self._packed.create_provider(PACKED)
            )
            self._module = rt.VmModule.copy_buffer(instance(), vmfb)
            self._context = rt.VmContext(
                instance(), [rt.create_hal_module(instance(), self._device), parameters, self._module]
            )
            [scope] = _members(self._invoke(_INDICES).get_as_list(0))
        except (RuntimeError, ValueError) as error:
            raise PipelineError(f"IREE's runtime refuses the encoder of the parameters: {first_line(error)}") from error
        self.entries: Mapping[str, Entry] = dict(map(_entry, _members(scope.get_as_list(1))))

    def fill(self, archive: Mapping[str, np.ndarray]) -> None:
        """Compute every entry into the aligned bytes that ``archive`` has for it."""
        for name, contents in archive.items():
            pattern = self.entries[name].pattern
            if pattern is not None:
                contents.reshape(-1, len(pattern))[:] = np.frombuffer(pattern, np.uint8)
            self._packed.add_buffer(name, contents.data, readable=True, writable=True)
        semaphore = self._device.create_semaphore(0)
        done = rt.HalFence.create_at(semaphore, 1)
        try:
            self._invoke(_ENCODE, self._invoke(_STEPS).get_as_list(0), rt.HalFence.create_at(semaphore, 0), done)
            done.wait()
        except (RuntimeError, ValueError) as error:
            raise PipelineError(f"IREE's runtime cannot pack the parameters: {first_line(error)}") from error

    def _invoke(self, function: str, *arguments: Any) -> Any:
        passed, returned = rt.VmVariantList(len(arguments)), rt.VmVariantList(1)
        for argument in arguments:
            if isinstance(argument, rt.VmVariantList):
                passed.push_list(argument)
            else:
                passed.push_ref(argument)
        self._context.invoke(self._module.lookup_function(function), passed, returned)
        return returned


def pack_into(file: Path, artifact: Artifact, names: Collection[str], provide: Callable[[str], np.ndarray]) -> Artifact:
    """Write what the artifact's encoder makes of parameters to ``file``; the artifact that reads it."""
    encoder = Encoder(artifact.files[ENCODER], names, provide)
    specs = {name: TensorSpec("uint8", (entry.size,), entry.size) for name, entry in encoder.entries.items()}
    encoder.fill(create_tensors(specs, file))
    return replace(artifact, files={name: data for name, data in artifact.files.items() if name != ENCODER})


def packed_of(artifact: Artifact, names: Collection[str], provide: Callable[[str], np.ndarray]) -> Packed:
    """What a module reads beside parameters: what was packed ahead, else what its encoder, where it has one, makes now."""
    reads = artifact.metadata.get("reads")
    if ENCODER not in artifact.files:
        return Packed(artifact.packed, reads)
    encoder = Encoder(artifact.files[ENCODER], names, provide)
    packed = {name: aligned_bytes(entry.size) for name, entry in encoder.entries.items()}
    encoder.fill(packed)
    return Packed(packed, reads)


def _members(lists: Any) -> list[Any]:
    return [lists.get_as_list(number) for number in range(lists.size)]


def _entry(described: Any) -> tuple[str, Entry]:
    """Kind, name, metadata, size; of a splat also the pattern, as an integer, and its bytes."""
    name = bytes(memoryview(described.get_as_object(1, rt.VmBuffer))).decode()
    size = described.get_variant(3)
    if described.get_variant(0) != _SPLAT:
        return name, Entry(size)
    width = described.get_variant(5)
    mask = (1 << 8 * width) - 1
    return name, Entry(size, (described.get_variant(4) & mask).to_bytes(width, "little"))
