"""A CUDA driver that lives in host memory, for tests: records what it is asked, and does copies, fills and kernels at once.

A kernel is a Python function of the grid and the argument values, read from the argument block as a GPU would read them.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from mlirstack.frontend.program import ArgumentSpec, Mutation, OutputSpec, ResultSpec, Signature
from mlirstack.passes.cuda.plan import TensorMap
from mlirstack.targets.cuda.driver import Driver, Graph, Handle, KernelCall

CELLS: dict[str, Any] = {
    "pointer": ctypes.c_uint64,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
}


@dataclass(frozen=True)
class Kernel:
    """``kinds`` are those of its arguments; ``body(grid, *values)`` does its work."""

    kinds: tuple[str, ...]
    body: Callable[..., None] = lambda grid, *values: None


@dataclass
class FakeDriver(Driver):
    """Kernels by name; ``calls`` is what happened, in order."""

    kernels: dict[str, Kernel]
    capability: tuple[int, int] = (9, 0)
    version: tuple[int, int] = (13, 0)
    shared_limit: int = 232448
    device_name: str = "a device in host memory"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    capturing: bool = False
    current_stream: int = 0
    slow: bool = False  # flags of checks arrive only when the stream is waited for
    late: list[tuple[int, int]] = field(default_factory=list)

    def named(self, name: str) -> list[tuple[Any, ...]]:
        """The calls of one method."""
        return [call for call in self.calls if call[0] == name]

    def is_current(self) -> bool:
        return True

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        yield

    def stream(self) -> int:
        return self.current_stream

    def is_capturing(self) -> bool:
        return self.capturing

    def load(self, image: bytes) -> Handle:
        self.calls.append(("load", image))
        return image

    def unload(self, module: Handle) -> None:
        self.calls.append(("unload", module))

    def function(self, module: Handle, name: str) -> Handle:
        return name

    def allow_shared(self, function: Handle, size: int) -> None:
        self.calls.append(("allow_shared", function, size))

    def launch(self, call: KernelCall, stream: int) -> None:
        values = self.values(call)
        self.calls.append(("launch", call.function, call.grid, values, stream))
        self.kernels[str(call.function)].body(call.grid, *values)

    def values(self, call: KernelCall) -> tuple[Any, ...]:
        """What the kernel would read: numbers and addresses; of a tensor map its 128 bytes."""
        kinds = self.kernels[str(call.function)].kinds
        addresses = (ctypes.c_void_p * len(kinds)).from_address(call.parameters) if kinds else ()
        return tuple(
            ctypes.string_at(address, 128) if kind == "tensor_map" else CELLS[kind].from_address(address).value
            for kind, address in zip(kinds, addresses, strict=True)
        )

    def copy(self, destination: int, source: int, size: int, stream: int) -> None:
        self.calls.append(("copy", destination, source, size))
        ctypes.memmove(destination, source, size)

    def copy_to_host(self, destination: int, source: int, size: int, stream: int) -> None:
        self.calls.append(("copy_to_host", source, size))
        if self.slow:
            self.late.append((destination, source))
        else:
            ctypes.memmove(destination, source, size)

    def fill(self, destination: int, value: int, width: int, count: int, stream: int) -> None:
        self.calls.append(("fill", destination, value, width, count))
        ctypes.memmove(destination, value.to_bytes(width, "little") * count, width * count)

    def encode(self, place: int, tensor_map: TensorMap, address: int) -> None:
        assert place % 64 == 0, "tensor maps are aligned to 64 bytes"
        self.calls.append(("encode", tensor_map, address))
        ctypes.memmove(place, encoded(address), 128)

    def pinned(self, size: int) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.uint8)

    def event(self) -> Handle:
        return "event"

    def record(self, event: Handle, stream: int) -> None:
        self.calls.append(("record", event))

    def wait(self, event: Handle) -> None:
        self.calls.append(("wait", event))

    def synchronize(self, stream: int) -> None:
        self.calls.append(("synchronize", stream))
        for destination, source in self.late:
            ctypes.memmove(destination, source, 1)
        self.late.clear()

    def graph(self) -> Graph:
        self.calls.append(("graph",))
        return FakeGraph(self)


def encoded(address: int) -> bytes:
    """What the fake writes as a tensor map."""
    return address.to_bytes(8, "little") * 16


class FakeGraph(Graph):
    """Nodes in the order of their dependencies; argument values are snapshots, as in CUDA."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.nodes: list[Any] = []
        self.ready = False

    def _add(self, after: Handle | None, node: Any) -> Handle:
        assert not self.ready and after == (len(self.nodes) - 1 if self.nodes else None)
        self.nodes.append(node)
        return len(self.nodes) - 1

    def add_kernel(self, after: Handle | None, call: KernelCall) -> Handle:
        return self._add(after, ("kernel", call, self.driver.values(call)))

    def add_copy(self, after: Handle | None, destination: int, source: int, size: int, *, to_host: bool = False) -> Handle:
        return self._add(after, ("copy", destination, source, size))

    def add_fill(self, after: Handle | None, destination: int, value: int, width: int, count: int) -> Handle:
        return self._add(after, ("fill", destination, value, width, count))

    def add_record(self, after: Handle | None, event: Handle) -> Handle:
        return self._add(after, ("record", event))

    def instantiate(self) -> None:
        self.ready = True

    def _update(self, node: Handle, new: Any) -> None:
        assert self.ready and isinstance(node, int)
        self.driver.calls.append(("update", node))
        self.nodes[node] = new

    def update_kernel(self, node: Handle) -> None:
        call = self.nodes[node][1]  # type: ignore[index]
        self._update(node, ("kernel", call, self.driver.values(call)))

    def update_copy(self, node: Handle, destination: int, source: int) -> None:
        self._update(node, ("copy", destination, source, self.nodes[node][3]))  # type: ignore[index]

    def update_fill(self, node: Handle, destination: int) -> None:
        self._update(node, ("fill", destination, *self.nodes[node][2:]))  # type: ignore[index]

    def launch(self, stream: int) -> None:
        assert self.ready
        self.driver.calls.append(("launch_graph", stream))
        for kind, *rest in self.nodes:
            if kind == "kernel":
                call, values = rest
                self.driver.kernels[str(call.function)].body(call.grid, *values)
            elif kind == "copy":
                ctypes.memmove(*rest)
            elif kind == "fill":
                destination, value, width, count = rest
                ctypes.memmove(destination, value.to_bytes(width, "little") * count, width * count)


def floats(address: int, count: int) -> Any:
    """``count`` f32 numbers at an address, to read and write."""
    return (ctypes.c_float * count).from_address(address)


def scale(grid: tuple[int, int, int], source: int, destination: int, count: int, factor: float) -> None:
    """destination = source * factor."""
    values = floats(source, count)
    floats(destination, count)[:] = [value * factor for value in values]


SCALE = Kernel(("pointer", "pointer", "i64", "f32"), scale)


def tensor(name: str, shape: Sequence[int | str], leaf: int, dtype: str = "float32") -> ArgumentSpec:
    """An input of the user."""
    return ArgumentSpec(name, "input", tuple(shape), dtype, leaf)


def signature(
    arguments: Sequence[ArgumentSpec],
    results: Sequence[ResultSpec],
    mutations: Sequence[Mutation] = (),
    **others: Any,
) -> Signature:
    """Positional inputs in, a tuple of all results out."""
    leaves = sum(argument.kind == "input" for argument in arguments)
    outputs = tuple(OutputSpec("result", index=i) for i in range(len(results)))
    return Signature(
        tuple(arguments),
        tuple(results),
        others.pop("outputs", outputs),
        pytree.treespec_dumps(pytree.tree_structure(((0,) * leaves, {}))),
        pytree.treespec_dumps(pytree.tree_structure((0,) * len(others.pop("out", outputs)))),
        tuple(mutations),
        **others,
    )
