"""Threads that go through a piece of code together, and the values they see.

A :class:`Frame` is a set of threads of one :class:`Unit` (some blocks that are executed side by side) with the values of a
function's SSA names.  A branch that only some threads take runs in a child frame of those threads; it sees its parent's
values through a selection made when a value is first used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from .faults import Divergence
from .kinds import CLUSTER, SHARED
from .memory import Memory

WARP = 32
SHARED_START = 1024  # shared addresses of a block begin here: what assumes 0 is found
RANK_SHIFT = 24  # a shared::cluster address holds the rank of its block plus one from this bit on


def take(value: Any, selection: Any, rank: Any) -> Any:
    """The part of a value that belongs to the selected threads."""
    if isinstance(rank, tuple):
        return tuple(take(member, selection, r) for member, r in zip(value, rank, strict=True))
    return value[selection] if value.ndim > rank else value


def spread(value: Any, rank: Any, count: int) -> Any:
    """A value with an axis for ``count`` threads, whether it had one or not; a copy that may be written to."""
    if isinstance(rank, tuple):
        return tuple(spread(member, r, count) for member, r in zip(value, rank, strict=True))
    if value.ndim > rank:
        return value.copy()
    return np.broadcast_to(value, (count, *value.shape)).copy()


def put(target: Any, selection: Any, value: Any) -> None:
    """Write the selected threads' part of a value made by :func:`spread`."""
    if isinstance(target, tuple):
        for part, new in zip(target, value, strict=True):
            put(part, selection, new)
    else:
        target[selection] = value


@dataclass
class Flight:
    """An asynchronous operation that defines registers: for how many warpgroups it is under way."""

    pending: int


class InFlight(tuple[Any, ...]):
    """Registers that an asynchronous operation defines; they may not be read before the threads have waited for it."""

    flight: Flight

    @classmethod
    def of(cls, values: Any, flight: Flight) -> InFlight:
        """Mark registers."""
        marked = cls(values)
        marked.flight = flight
        return marked


class Values(dict[int, Any]):
    """SSA values by number; what is not there comes from the parent."""

    __slots__ = ("parent", "ranks", "selection")

    def __init__(self, ranks: list[Any], parent: Values | None = None, selection: Any = None) -> None:
        super().__init__()
        self.ranks, self.parent, self.selection = ranks, parent, selection

    def __missing__(self, number: int) -> Any:
        if self.parent is None:
            raise KeyError(f"value {number} is used before it is defined")
        value = take(self.parent[number], self.selection, self.ranks[number])
        self[number] = value
        return value


@dataclass
class Unit:
    """Blocks that are executed side by side: their memory and their place in the grid.

    ``blocks``: linear numbers of the blocks.  ``shared_base``: address of the shared memory of the first one, ``window`` the
    bytes from one to the next.  ``cluster``: blocks of a cluster (along x).
    """

    memory: Memory
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    blocks: np.ndarray[Any, Any]
    shared_base: int = 0
    window: int = 0
    dynamic_bytes: int = 0  # dynamic shared memory of a block
    cluster: int = 1
    is_host: bool = False  # not a grid: one thread that runs the code around the launches
    races: Any = None  # who touched which byte, if races are looked for
    state: dict[Any, Any] = field(default_factory=dict)  # of ops that remember something: barriers, pending copies

    @cached_property
    def block_threads(self) -> int:
        """Threads of a block."""
        return int(np.prod(self.block))

    @property
    def count(self) -> int:
        """Threads of all blocks."""
        return self.block_threads * len(self.blocks)


class Frame:
    """Some threads of a unit.  ``threads``: numbers of the threads in the unit, ascending; ``env``: their values."""

    __slots__ = ("__dict__", "env", "threads", "unit")

    def __init__(self, unit: Unit, env: Values, threads: Any) -> None:
        self.unit, self.env, self.threads = unit, env, threads

    def child(self, selection: Any) -> Frame:
        """The frame of some of the threads; ``selection`` are positions in this frame."""
        return Frame(self.unit, Values(self.env.ranks, self.env, selection), self.threads[selection])

    @property
    def count(self) -> int:
        """Number of threads."""
        return len(self.threads)

    @cached_property
    def thread(self) -> Any:
        """Number of each thread in its block."""
        return self.threads % self.unit.block_threads

    @cached_property
    def local_block(self) -> Any:
        """Position of each thread's block in the unit; a scalar if all are of one block."""
        size = self.unit.block_threads
        first, last = self.threads[0] // size, self.threads[-1] // size
        return first if first == last else self.threads // size

    @cached_property
    def block(self) -> Any:
        """Linear number of each thread's block in the grid."""
        return self.unit.blocks[self.local_block]

    @cached_property
    def lane(self) -> Any:
        """Number of each thread in its warp."""
        return self.thread % WARP

    @cached_property
    def shared_base(self) -> Any:
        """What has to be added to a shared address to get an address of the memory."""
        return self.unit.shared_base + self.local_block * self.unit.window - SHARED_START

    def resolve(self, pointer: Any, space: int) -> Any:
        """The memory address of a pointer of an address space."""
        if space not in (SHARED, CLUSTER):
            return pointer
        ranks = pointer >> RANK_SHIFT
        if ranks.any():
            return self._resolve_cluster(pointer, ranks)
        return pointer + self.shared_base

    def _resolve_cluster(self, pointer: Any, ranks: Any) -> Any:
        offset = pointer & ((1 << RANK_SHIFT) - 1)
        own = self.local_block
        first = own - own % self.unit.cluster
        target = np.where(ranks == 0, own, first + ranks - 1)
        return self.unit.shared_base + target * self.unit.window - SHARED_START + offset

    @cached_property
    def warps(self) -> Any:
        """The threads as rows of whole warps: positions in this frame, shape [warps, 32].

        Raises Divergence where a thread of a warp is missing.
        """
        threads = self.threads
        rows = threads.reshape(-1, WARP) if len(threads) % WARP == 0 else None
        if rows is None or (rows[:, 0] % WARP).any() or (rows[:, -1] - rows[:, 0] != WARP - 1).any():
            raise Divergence("an op of whole warps is reached by parts of a warp", np.arange(len(threads)))
        return np.arange(len(threads)).reshape(-1, WARP)

    def whole_blocks(self) -> bool:
        """Are all threads of every block that has a thread here in the frame?"""
        if self.count == self.unit.count:
            return True
        present = np.bincount(self.threads // self.unit.block_threads)
        return bool(np.isin(present, (0, self.unit.block_threads)).all())

    def per_thread(self, value: Any, rank: int = 0) -> Any:
        """``value`` with an axis for the threads."""
        return value if value.ndim > rank else np.broadcast_to(value, (self.count, *value.shape))

    def names(self, positions: Any) -> list[str]:
        """Some threads in words, at most four."""
        positions = np.arange(self.count) if positions is None else positions
        chosen = [int(self.threads[p]) for p in positions if p < self.count][:4]
        size = self.unit.block_threads
        names = [f"block {self.unit.blocks[t // size]} thread {t % size}" for t in chosen]
        return names + ([f"… {len(positions)} in all"] if len(positions) > len(chosen) else [])
