"""The memory of the emulated device: one array of bytes, addresses are offsets into it.

Every byte has a state (no buffer, written or not), so that an access outside a buffer and a read of what nothing wrote are
found.  Buffers are kept apart by gaps that belong to none.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np

from .faults import Misaligned, OutOfBounds, Uninitialised
from .kinds import Kind, layout_of

ALLOCATED, WRITTEN = 1, 3  # states of a byte: bit 0 "in a buffer", bit 1 "written"; 0 is "in no buffer"
POISON = 0xFF  # bytes that nothing wrote: NaN in every float type, -1 in integers
_GAP = 256
_STATE_WORDS = {size: np.dtype(f"uint{8 * size}") for size in (1, 2, 4, 8)}


def _repeat(state: int, size: int) -> Any:
    return _STATE_WORDS[size].type(int.from_bytes(bytes([state]) * size, "little"))


_ALL_ALLOCATED = {size: _repeat(ALLOCATED, size) for size in _STATE_WORDS}
_ALL_WRITTEN = {size: _repeat(WRITTEN, size) for size in _STATE_WORDS}


class Memory:
    """Bytes and their states; addresses are int64, scalars or one per thread."""

    def __init__(self, capacity: int = 1 << 20) -> None:
        self.top = 4096  # the null pointer and its neighbours are in no buffer
        self.starts: list[int] = []
        self.buffers: list[tuple[int, int, str]] = []
        self.lenient = (0, 0)  # addresses whose bytes may be read before they are written: they hold POISON
        self.tensor_maps: dict[int, Any] = {}  # by the address of the object
        self._reserve(capacity)

    def _reserve(self, capacity: int) -> None:
        data, state = np.zeros(capacity, np.uint8), np.zeros(capacity, np.uint8)
        if self.buffers:
            data[: self.top], state[: self.top] = self.data[: self.top], self.state[: self.top]
        self.data, self.state = data, state
        self._views: dict[np.dtype[Any], Any] = {}
        self._state_views = {size: state.view(word) for size, word in _STATE_WORDS.items()}

    def view(self, dtype: np.dtype[Any]) -> Any:
        """The whole memory as an array of ``dtype``."""
        if dtype not in self._views:
            self._views[dtype] = self.data.view(dtype)
        return self._views[dtype]

    # ----------------------------------------------------------------------------------------------------------- buffers

    def allocate(self, size: int, name: str, alignment: int = 256, shift: int = 0) -> int:
        """Address of a new buffer of ``size`` bytes, nothing of it written; ``shift`` bytes behind a multiple of
        ``alignment``."""
        start = -(-(self.top + _GAP) // alignment) * alignment + shift
        end = start + size
        if end + 4096 > len(self.data):
            self._reserve(-(-(2 * end + 8192) // 4096) * 4096)
        self.top = end
        self.state[start:end] = ALLOCATED
        self.data[start:end] = POISON
        self.starts.append(start)
        self.buffers.append((start, end, name))
        return start

    def release(self, mark: int) -> None:
        """Free all buffers from address ``mark`` on."""
        while self.buffers and self.buffers[-1][0] >= mark:
            start, end, _ = self.buffers.pop()
            self.starts.pop()
            self.state[start:end] = 0
        self.top = self.buffers[-1][1] if self.buffers else 4096

    def write_array(self, address: int, array: np.ndarray[Any, Any]) -> None:
        """Copy a host array to ``address``."""
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.data[address : address + raw.size] = raw
        self.state[address : address + raw.size] = WRITTEN

    def read_array(self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """A copy of the contiguous array at ``address``; Uninitialised if a byte of it was not written."""
        size = int(np.prod(shape, dtype=int)) * dtype.itemsize
        unwritten = np.flatnonzero(self.state[address : address + size] != WRITTEN)
        if unwritten.size:
            raise Uninitialised(
                f"{unwritten.size} bytes were not written, the first one {self.where(address + unwritten[0])}"
            )
        return self.data[address : address + size].copy().view(dtype).reshape(shape)

    def copy(self, sources: Any, targets: Any, size: int) -> None:
        """Copy elements of ``size`` bytes, also those that were not written: they stay so at the target."""
        source, target = (places[:, None] + np.arange(size) for places in (sources, targets))
        for places in (source, target):
            if (self.state.take(places, mode="clip") == 0).any():
                raise OutOfBounds("a copy from or to places outside every buffer")
        self.data[target], self.state[target] = self.data[source], self.state[source]

    def where(self, address: int) -> str:
        """An address in words."""
        position = bisect_right(self.starts, address) - 1
        if position < 0:
            return f"at address {address:#x}, before every buffer"
        start, end, name = self.buffers[position]
        return f"at byte {address - start} of {name} ({end - start} bytes)"

    # ------------------------------------------------------------------------------------------------------------- access

    def load(self, addresses: Any, kind: Kind, alignment: int | None = None) -> Any:
        """Values of ``kind`` at ``addresses``."""
        if kind.members is not None:
            offsets, _ = layout_of(kind)
            return tuple(self.load(addresses + o, m) for o, m in zip(offsets, kind.members, strict=True))
        index = self._index(addresses, kind, alignment)
        size = kind.dtype.itemsize
        states = self._state_views[size].take(index, mode="clip")
        bad = states != _ALL_WRITTEN[size]
        if bad.any():
            self._check_read(index, bad, size)
        values = self.view(kind.dtype).take(index, mode="clip")
        return values if len(kind.shape) < 2 else values.reshape(*values.shape[:-1], *kind.shape)

    def store(self, addresses: Any, values: Any, kind: Kind, alignment: int | None = None) -> None:
        """Write values of ``kind``; where threads write the same address, the last one wins."""
        if kind.members is not None:
            offsets, _ = layout_of(kind)
            for offset, value, member in zip(offsets, values, kind.members, strict=True):
                self.store(addresses + offset, value, member)
            return
        if np.ndim(addresses) == 0 and values.ndim > len(kind.shape):  # one address for all threads
            addresses = np.broadcast_to(addresses, values.shape[:1])
        index = self._index(addresses, kind, alignment)
        size = kind.dtype.itemsize
        state = self._state_views[size]
        bad = (state.take(index, mode="clip") & _ALL_ALLOCATED[size]) != _ALL_ALLOCATED[size]
        if bad.any():
            self._complain(index, bad, size, "write")
        if len(kind.shape) > 1:
            values = values.reshape(*values.shape[: values.ndim - len(kind.shape)], kind.count)
        self.view(kind.dtype)[index] = values
        state[index] = _ALL_WRITTEN[size]

    def _index(self, addresses: Any, kind: Kind, alignment: int | None) -> Any:
        """Positions of elements in the view of the dtype; one more axis for vectors."""
        size = kind.dtype.itemsize
        wanted = max(alignment or size, size)
        wrong = addresses & (wanted - 1)
        if wrong.any():
            threads = np.flatnonzero(np.atleast_1d(wrong))
            first = np.atleast_1d(addresses)[threads[0]]
            raise Misaligned(f"address {self.where(int(first))} is not a multiple of {wanted} bytes", threads)
        index = addresses // size
        return index if not kind.shape else index[..., None] + np.arange(kind.count)

    def _check_read(self, index: Any, bad: Any, size: int) -> None:
        start, end = self.lenient
        address = index * size
        allowed = (address >= start) & (address < end) & (self._state_views[size].take(index, mode="clip") != 0)
        if (bad & ~allowed).any():
            self._complain(index, bad & ~allowed, size, "read")

    def _complain(self, index: Any, bad: Any, size: int, what: str) -> None:
        index, bad = np.atleast_1d(index), np.atleast_1d(bad)
        places = np.argwhere(bad)
        address = int(index[tuple(places[0])]) * size
        threads = np.unique(places[:, 0])
        state = 0 if not 0 <= address < len(self.state) - size else int(self.state[address : address + size].min())
        if state == 0:
            raise OutOfBounds(f"{what} of {size} bytes outside every buffer: {self.where(address)}", threads)
        raise Uninitialised(f"read of {size} bytes that nothing wrote: {self.where(address)}", threads)
