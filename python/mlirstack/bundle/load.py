"""``ms.load``: a bundle on disk becomes a callable with the model's own signature.

Needs NumPy, safetensors' file format, and the runtime of the target that is chosen; with torch, tensors go in and come out,
without it NumPy arrays.  Neither torch-mlir nor any compiler is imported.
"""

from __future__ import annotations

import importlib
import logging
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mlirstack.bundle.background import Background
from mlirstack.bundle.manifest import ArtifactEntry, Manifest
from mlirstack.bundle.parameters import MappedTensor
from mlirstack.bundle.select import choose
from mlirstack.bundle.store import artifact_of, mapped_parameters, open_bundle
from mlirstack.errors import BundleError
from mlirstack.targets.registry import create_target
from mlirstack.targets.requirements import is_installed

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger("mlirstack")


class LoadedModel:
    """A model from a bundle: call it as the model is called, with tensors or with NumPy arrays (which give arrays back).

    ``manifest`` is the bundle's, ``entry`` the artifact that was chosen and ``choice`` why; ``device`` is torch's name of
    where it runs; ``load_seconds`` is how long checking and loading took.  Calls from several threads are safe.
    """

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        entry: ArtifactEntry,
        choice: str,
        function: Callable[..., Any],
        *,
        device: str,
        tf32: bool,
        has_torch: bool,
        load_seconds: float,
    ) -> None:
        self.path, self.manifest, self.entry, self.choice = path, manifest, entry, choice
        self.function, self.device, self.tf32, self.load_seconds = function, device, tf32, load_seconds
        self._has_torch = has_torch
        self._lock = threading.Lock()
        self._background: Background | None = None
        self._end: weakref.finalize[Any, Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run; raises :class:`~mlirstack.errors.SignatureError` where the call does not fit, naming the argument."""
        if self._has_torch and _any_array((args, kwargs)):
            from mlirstack.bundle.torch_arrays import call_with_arrays

            return call_with_arrays(self.function, args, kwargs, self.device)
        return self.function(*args, **kwargs)

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run in the background, one call after the other in the order they came; the future has the outputs or the error.

        On CUDA the call sees what the caller's current stream has been told so far, and the device is given the next call
        before it is done with this one.
        """
        with self._lock:
            if self._background is None:
                self._background = Background(f"mlirstack-{self.manifest.model}")
                # When nobody holds the model any more, or the program ends: runtimes complain of what is left then.
                self._end = weakref.finalize(self, self._background.close)
            background = self._background
        begin: Callable[..., Callable[[], Any]] = self._begin
        if self.device.startswith("cuda"):
            from mlirstack.bundle.torch_arrays import in_stream_order

            begin = in_stream_order(begin, self.device)
        return background.submit(lambda: begin(*args, **kwargs))

    def _begin(self, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """Begin a call; what is returned waits for it.  Calls with arrays are over by then."""
        start = getattr(self.function, "start", None)
        if start is not None and not _any_array((args, kwargs)):
            finish: Callable[[], Any] = start(*args, **kwargs)
            return finish
        outputs = self(*args, **kwargs)
        return lambda: outputs

    def close(self) -> None:
        """Wait for what was submitted."""
        with self._lock:
            end, self._end, self._background = self._end, None, None
        if end:
            end()

    def __repr__(self) -> str:
        return f"<{self.manifest.model} from {self.path}, {self.entry.spec} on {self.device}: {self.choice}>"


def load(path: str | Path, *, device: str | None = None, threads: int = 1, trust_parameters: bool = False) -> LoadedModel:
    """Check the bundle at ``path`` and load the best artifact that runs here; what was chosen is logged as information.

    ``device`` forces another one: "cpu", "cuda", a target, or a target with its architecture.  ``threads`` are those of the
    processor.  ``trust_parameters`` skips reading all parameters for their checksum.  Raises
    :class:`~mlirstack.errors.BundleError` for a damaged bundle, before any of it reaches native code, and
    :class:`~mlirstack.errors.TargetUnavailableError` where nothing of it runs here.

    >>> model = load("net.bundle"); y = model(x)
    """
    if is_installed("torch"):
        importlib.import_module("torch")  # not part of the time that loading a bundle takes
    started = time.perf_counter()
    directory = Path(path)
    manifest = open_bundle(directory, trust_parameters=trust_parameters)
    if manifest.rebuilt:
        raise BundleError(f"bundle {directory} stores no parameters: it runs only beside the model that it was built of")
    choice = choose(manifest, device)
    loaded = load_entry(directory, manifest, choice.entry, choice.reason, threads=threads, started=started)
    _log.info("%s: %s, %s", directory, choice.entry.spec, choice.reason)
    return loaded


def load_entry(
    path: Path,
    manifest: Manifest,
    entry: ArtifactEntry,
    reason: str,
    *,
    threads: int = 1,
    started: float | None = None,
    parameters: Mapping[str, MappedTensor] | None = None,
) -> LoadedModel:
    """Load one artifact of a bundle that has been opened; ``parameters`` replace those that it stores."""
    started = time.perf_counter() if started is None else started
    target = create_target(entry.spec, threads=threads)
    artifact = artifact_of(path, entry)
    mapped = mapped_parameters(path, manifest) if parameters is None else parameters
    has_torch = is_installed("torch")
    function: Callable[..., Any]
    if has_torch:
        from mlirstack.targets.callable import CompiledFunction

        tensors = {name: parameter.tensor() for name, parameter in mapped.items()}
        executable = target.load(artifact, manifest.signature, tensors)
        function = CompiledFunction(executable, manifest.signature, tensors, route=entry.route)
        device, tf32 = executable.device, executable.tf32
    else:
        from mlirstack.bundle.array_function import ArrayFunction

        arrays = {name: parameter.array() for name, parameter in mapped.items()}
        function = ArrayFunction(target.load_arrays(artifact, manifest.signature, arrays), manifest.signature, arrays)
        device, tf32 = entry.requirements.device, False
    seconds = time.perf_counter() - started
    return LoadedModel(
        path,
        manifest,
        entry,
        reason,
        function,
        device=device,
        tf32=tf32,
        has_torch=has_torch,
        load_seconds=seconds,
    )


def _any_array(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_any_array(member) for member in value.values())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return any(_any_array(member) for member in value)
    return isinstance(value, np.ndarray)
