"""The steps of a static plan as commands: each can be enqueued on a stream, or become a node of a CUDA graph.

Commands name memory by base and offset.  A base is an address that is known only when the function is called (an input, a
result, the arena, a constant); ``addresses`` of the methods below lists those of one call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from mlirstack.targets.cuda.driver import Driver, Graph, Handle, KernelCall

Addresses = Sequence[int]


@dataclass(frozen=True)
class Place:
    """A piece of device memory: ``offset`` bytes behind the address of ``base``."""

    base: int
    offset: int

    def address(self, addresses: Addresses) -> int:
        """Where it is in this call."""
        return addresses[self.base] + self.offset


class Command(ABC):
    """One step.  ``bases`` are those that it depends on."""

    bases: frozenset[int]

    @abstractmethod
    def enqueue(self, driver: Driver, addresses: Addresses, stream: int) -> None:
        """Let the stream do it."""

    @abstractmethod
    def add(self, graph: Graph, after: Handle | None, addresses: Addresses) -> Handle:
        """Add it to a graph; the node."""

    @abstractmethod
    def update(self, graph: Graph, node: Handle, addresses: Addresses) -> None:
        """Bring its node up to date after an address of :attr:`bases` changed."""


@dataclass(frozen=True)
class LaunchKernel(Command):
    """Launch a kernel; its argument values lie in an argument block that is already up to date."""

    call: KernelCall
    bases: frozenset[int]

    def enqueue(self, driver: Driver, addresses: Addresses, stream: int) -> None:
        driver.launch(self.call, stream)

    def add(self, graph: Graph, after: Handle | None, addresses: Addresses) -> Handle:
        return graph.add_kernel(after, self.call)

    def update(self, graph: Graph, node: Handle, addresses: Addresses) -> None:
        graph.update_kernel(node)


class CopyMemory(Command):
    """Copy ``size`` bytes within the device."""

    def __init__(self, destination: Place, source: Place, size: int) -> None:
        self.destination, self.source, self.size = destination, source, size
        self.bases = frozenset({destination.base, source.base})

    def enqueue(self, driver: Driver, addresses: Addresses, stream: int) -> None:
        driver.copy(self.destination.address(addresses), self.source.address(addresses), self.size, stream)

    def add(self, graph: Graph, after: Handle | None, addresses: Addresses) -> Handle:
        return graph.add_copy(after, self.destination.address(addresses), self.source.address(addresses), self.size)

    def update(self, graph: Graph, node: Handle, addresses: Addresses) -> None:
        graph.update_copy(node, self.destination.address(addresses), self.source.address(addresses))


class FillMemory(Command):
    """Write ``count`` times a pattern of ``width`` bytes."""

    def __init__(self, destination: Place, value: int, width: int, count: int) -> None:
        self.destination, self.value, self.width, self.count = destination, value, width, count
        self.bases = frozenset({destination.base})

    def enqueue(self, driver: Driver, addresses: Addresses, stream: int) -> None:
        driver.fill(self.destination.address(addresses), self.value, self.width, self.count, stream)

    def add(self, graph: Graph, after: Handle | None, addresses: Addresses) -> Handle:
        return graph.add_fill(after, self.destination.address(addresses), self.value, self.width, self.count)

    def update(self, graph: Graph, node: Handle, addresses: Addresses) -> None:
        graph.update_fill(node, self.destination.address(addresses))


class ReadFlag(Command):
    """Copy the byte of a check to the host; ``flag`` is the address of its place there."""

    def __init__(self, flag: int, source: Place) -> None:
        self.flag, self.source = flag, source
        self.bases = frozenset({source.base})

    def enqueue(self, driver: Driver, addresses: Addresses, stream: int) -> None:
        driver.copy_to_host(self.flag, self.source.address(addresses), 1, stream)

    def add(self, graph: Graph, after: Handle | None, addresses: Addresses) -> Handle:
        return graph.add_copy(after, self.flag, self.source.address(addresses), 1, to_host=True)

    def update(self, graph: Graph, node: Handle, addresses: Addresses) -> None:
        graph.update_copy(node, self.flag, self.source.address(addresses))


@dataclass(frozen=True)
class RecordEvent(Command):
    """Let an event happen."""

    event: Handle
    bases: frozenset[int] = frozenset()

    def enqueue(self, driver: Driver, addresses: Addresses, stream: int) -> None:
        driver.record(self.event, stream)

    def add(self, graph: Graph, after: Handle | None, addresses: Addresses) -> Handle:
        return graph.add_record(after, self.event)

    def update(self, graph: Graph, node: Handle, addresses: Addresses) -> None:
        """An event depends on no address."""
