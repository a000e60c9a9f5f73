"""What plans ask of a CUDA driver: one device, its modules, launches, copies and graphs, as an interface.

:mod:`mlirstack.targets.cuda.native` implements it with cuda-bindings; tests put a recording driver in its place.  Every
method raises :class:`DeviceError` with the name of the driver's call and of its error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from mlirstack.passes.cuda.plan import TensorMap
from mlirstack.targets.cuda.arch import Capability

Handle = object  # whatever a driver uses to name a function, an event, a node
Triple = tuple[int, int, int]

TENSOR_MAP_BYTES, TENSOR_MAP_ALIGNMENT = 128, 64


@dataclass(frozen=True)
class KernelCall:
    """A kernel launch but for the stream.  ``parameters`` is the address of an array of pointers to argument values.

    ``overlaps``: the kernel waits itself until a kernel right before it is done.
    """

    function: Handle
    grid: Triple
    block: Triple
    shared: int
    parameters: int
    overlaps: bool = False


class Driver(ABC):
    """One device.  All addresses and sizes are in bytes; launches, copies and fills are asynchronous."""

    device: torch.device
    device_name: str
    capability: Capability
    version: tuple[int, int]  # newest CUDA version that the driver serves
    shared_limit: int  # bytes of shared memory that a block may ask for

    # ------------------------------------------------------------------------------------------------- state of a thread

    @abstractmethod
    def is_current(self) -> bool:
        """Is the device the current one of torch, and its context that of the driver, in this thread?"""

    @abstractmethod
    def current(self) -> AbstractContextManager[None]:
        """Make it so within a block."""

    @abstractmethod
    def stream(self) -> int:
        """Torch's current stream on the device."""

    @abstractmethod
    def is_capturing(self) -> bool:
        """Is that stream being captured into a graph of the user's?"""

    # ------------------------------------------------------------------------------------------------------------ modules

    @abstractmethod
    def load(self, image: bytes) -> Handle:
        """Load a cubin, a fatbin or PTX text as a module."""

    @abstractmethod
    def unload(self, module: Handle) -> None:
        """Forget a module, now or when others are loaded; its kernels may still run."""

    @abstractmethod
    def function(self, module: Handle, name: str) -> Handle:
        """A kernel of a module."""

    @abstractmethod
    def allow_shared(self, function: Handle, size: int) -> None:
        """Allow launches of a kernel with up to ``size`` bytes of dynamic shared memory."""

    # --------------------------------------------------------------------------------------------------------------- work

    @abstractmethod
    def launch(self, call: KernelCall, stream: int) -> None:
        """Launch a kernel; argument values are read before this returns."""

    @abstractmethod
    def copy(self, destination: int, source: int, size: int, stream: int) -> None:
        """Copy within the device."""

    @abstractmethod
    def copy_to_host(self, destination: int, source: int, size: int, stream: int) -> None:
        """Copy from the device into pinned host memory."""

    @abstractmethod
    def fill(self, destination: int, value: int, width: int, count: int, stream: int) -> None:
        """Write ``count`` times a pattern of ``width`` bytes (1, 2 or 4)."""

    @abstractmethod
    def encode(self, place: int, tensor_map: TensorMap, address: int) -> None:
        """Write the tensor map over ``address`` to host memory at ``place`` (128 bytes, aligned to 64)."""

    @abstractmethod
    def pinned(self, size: int) -> torch.Tensor:
        """Host memory of ``size`` bytes that the device can write to."""

    @abstractmethod
    def event(self) -> Handle:
        """A new event."""

    @abstractmethod
    def record(self, event: Handle, stream: int) -> None:
        """Let ``event`` happen when the stream gets here."""

    @abstractmethod
    def wait(self, event: Handle) -> None:
        """Block this thread until ``event`` has happened."""

    @abstractmethod
    def synchronize(self, stream: int) -> None:
        """Block this thread until the stream has done all its work."""

    @abstractmethod
    def graph(self) -> Graph:
        """A new, empty graph."""


class Graph(ABC):
    """A CUDA graph under construction, then instantiated.  Each node runs after the node ``after`` (None: it is the first).

    Updates concern launches to come, not those that are enqueued already.
    """

    @abstractmethod
    def add_kernel(self, after: Handle | None, call: KernelCall) -> Handle:
        """Add a kernel launch; argument values are read before this returns."""

    @abstractmethod
    def add_copy(self, after: Handle | None, destination: int, source: int, size: int, *, to_host: bool = False) -> Handle:
        """Add a copy within the device, or into pinned host memory."""

    @abstractmethod
    def add_fill(self, after: Handle | None, destination: int, value: int, width: int, count: int) -> Handle:
        """Add a fill."""

    @abstractmethod
    def add_record(self, after: Handle | None, event: Handle) -> Handle:
        """Add the recording of an event."""

    @abstractmethod
    def instantiate(self) -> None:
        """Make it launchable; nodes can be updated from now on and no longer added."""

    @abstractmethod
    def update_kernel(self, node: Handle) -> None:
        """Read the argument values of a kernel node anew."""

    @abstractmethod
    def update_copy(self, node: Handle, destination: int, source: int) -> None:
        """Give a copy node other addresses."""

    @abstractmethod
    def update_fill(self, node: Handle, destination: int) -> None:
        """Give a fill node another address."""

    @abstractmethod
    def launch(self, stream: int) -> None:
        """Enqueue the whole graph."""
