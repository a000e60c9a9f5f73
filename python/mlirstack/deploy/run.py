"""``run``: calls a bundle on inputs and writes what comes out, with the time of each call and the memory of the process."""

from __future__ import annotations

import resource
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlirstack.bundle.golden import to_stored
from mlirstack.bundle.load import LoadedModel
from mlirstack.bundle.verify import flatten_outputs, structure_inputs
from mlirstack.deploy.inputs import SUFFIXES, read_inputs
from mlirstack.errors import UsageError
from mlirstack.targets.requirements import is_installed


@dataclass(frozen=True)
class Call:
    """One call: seconds from inputs on the device to outputs there, and the outputs by name ("output0")."""

    name: str
    seconds: float
    outputs: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Memory:
    """Peak bytes of the process, and of torch's allocator on the device (None on a processor)."""

    host: int
    device: int | None


def calls(model: LoadedModel, inputs: Iterable[tuple[str, list[Any]]], *, repeat: int = 1) -> Iterator[Call]:
    """Run each of ``inputs`` (a name, flat leaves), lazily; of ``repeat`` calls the quickest counts."""
    for name, leaves in inputs:
        best = float("inf")
        for _ in range(repeat):
            seconds, output = _timed(model, leaves)
            best = min(best, seconds)
        outputs = flatten_outputs(model.manifest, output)
        yield Call(name, best, {f"output{i}": _array(leaf) for i, leaf in enumerate(outputs) if leaf is not None})


def input_files(folder: Path) -> list[Path]:
    """The files of inputs in a folder, by name; :class:`UsageError` where there are none."""
    found = sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES)
    if not found:
        raise UsageError(f"{folder} holds no inputs", hint=f"they are files ending in {', '.join(SUFFIXES)}")
    return found


def read_all(files: Iterable[Path], model: LoadedModel) -> Iterator[tuple[str, list[Any]]]:
    """Name and leaves of each file, read when it is its turn."""
    for file in files:
        yield file.stem, read_inputs(file, model.manifest)


def write_outputs(call: Call, file: Path) -> None:
    """Write the outputs as .npz, whole or not at all; bfloat16 as its bits.  :class:`UsageError` where that fails."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}-", delete=False) as stream:
            aside = Path(stream.name)
            try:
                with zipfile.ZipFile(stream, "w") as archive:
                    for name, array in call.outputs.items():
                        with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                            np.lib.format.write_array(member, to_stored(array, array.dtype.name), allow_pickle=False)
                stream.flush()
                aside.rename(file)
            finally:
                aside.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}", hint="free space, or name another place") from error


def memory(model: LoadedModel) -> Memory:
    """What this process has needed so far."""
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if not model.device.startswith("cuda") or not is_installed("torch"):
        return Memory(host, None)
    import torch

    return Memory(host, torch.cuda.max_memory_allocated())


def _timed(model: LoadedModel, leaves: list[Any]) -> tuple[float, Any]:
    if not is_installed("torch"):
        args, kwargs = structure_inputs(model.manifest, leaves)
        started = time.perf_counter()
        output = model(*args, **kwargs)
        return time.perf_counter() - started, output
    import torch

    from mlirstack.bundle.torch_arrays import tensor_of

    placed = [tensor_of(leaf).to(model.device) if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
    args, kwargs = structure_inputs(model.manifest, placed)
    if model.device.startswith("cuda"):
        torch.cuda.synchronize()
    started = time.perf_counter()
    with torch.no_grad():
        output = model(*args, **kwargs)
    if model.device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - started, output


def _array(leaf: Any) -> np.ndarray:
    if isinstance(leaf, np.ndarray) or not hasattr(leaf, "detach"):
        return np.asarray(leaf)
    from mlirstack.bundle.torch_arrays import array_of

    return array_of(leaf)
