"""Unordered accesses: vector clocks of warps and of asynchronous operations, and who touched each word last.

An agent is a warp, or one of a few slots for asynchronous operations (copies, products).  ``known[w]`` holds, for each
agent, the time up to which warp w is ordered behind it; barriers join these vectors.  A word of shared memory remembers its
last writer and two of its last readers, each with its time (FastTrack: Flanagan and Freund, PLDI 2009).  ``fenced`` is the
same for what asynchronous operations may see of ordinary writes: ``fence.proxy.async`` copies ``known`` there.  Global
memory remembers which block wrote an element during a launch.

Lanes of a warp count as ordered; words are four bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .faults import Race
from .frames import WARP, Frame, Unit
from .kinds import Kind

_SLOTS = 16  # asynchronous operations that are told apart
_WORD = 4


class Races:
    """The state of one unit.  ``writes``: who wrote global memory in this launch; None where blocks talk to each other."""

    def __init__(self, unit: Unit, shared_bytes: int, writes: GlobalWrites | None) -> None:
        self.unit, self.writes = unit, writes
        self.start, self.end = unit.shared_base, unit.shared_base + shared_bytes
        self.warps_per_block = -(-unit.block_threads // WARP)
        self.warps_per_cluster = self.warps_per_block * unit.cluster
        self.agents = self.warps_per_cluster + _SLOTS
        warps = self.warps_per_block * len(unit.blocks)
        self.known = np.zeros((warps, self.agents), np.int64)
        self.fenced = np.zeros((warps, self.agents), np.int64)
        self.known[np.arange(warps), np.arange(warps) % self.warps_per_cluster] = 1
        words = shared_bytes // _WORD
        self.writer, self.written = np.zeros(words, np.int64), np.zeros(words, np.int64)
        self.readers, self.read_at = np.zeros((2, words), np.int64), np.zeros((2, words), np.int64)
        self.objects: dict[Any, tuple[Any, Any]] = {}  # barriers: what is known to those who wait there
        self.operations = 0
        self.slot_times = np.zeros(_SLOTS, np.int64)

    # -------------------------------------------------------------------------------------------------------------- threads

    def _warps(self, frame: Frame) -> Any:
        """The warp of each thread, numbered in the unit."""
        size = self.unit.block_threads
        if size % WARP == 0:
            return frame.threads // WARP
        return frame.threads // size * self.warps_per_block + frame.threads % size // WARP

    def _agent(self, warps: Any) -> Any:
        return warps % self.warps_per_cluster

    # ------------------------------------------------------------------------------------------------------------- accesses

    def _words(self, frame: Frame, addresses: Any, kind: Kind) -> tuple[Any, Any]:
        """Words of shared memory of an access, and the warp of each; both flat.  Empty where it is not shared memory."""
        addresses = np.asarray(frame.per_thread(addresses))
        if not addresses.size or not self.start <= int(addresses.flat[0]) < self.end:
            return _NOTHING
        warps = self._warps(frame)
        first = (addresses - self.start) // _WORD
        count = max(1, kind.bytes // _WORD)
        if count == 1:
            return first, warps
        return (first[:, None] + np.arange(count)).reshape(-1), np.repeat(warps, count)

    def read(self, frame: Frame, addresses: Any, kind: Kind) -> None:
        """Threads read ``kind`` at ``addresses``."""
        words, warps = self._words(frame, addresses, kind)
        if not words.size:
            self.read_global(frame, addresses, kind)
            return
        late = self.written[words] > self.known[warps, self.writer[words]]
        if late.any():
            self._complain("read", "written", words, late, self.writer, frame, kind)
        self._note_read(words, self._agent(warps), self.known[warps, self._agent(warps)])

    def _note_read(self, words: Any, agents: Any, times: Any) -> None:
        self.readers[0, words], self.read_at[0, words] = agents, times
        back = slice(None, None, -1)
        if np.ndim(agents):
            self.readers[1, words[back]], self.read_at[1, words[back]] = agents[back], times[back]

    def write(self, frame: Frame, addresses: Any, kind: Kind) -> None:
        """Threads write ``kind`` at ``addresses``."""
        words, warps = self._words(frame, addresses, kind)
        if not words.size:
            self.write_global(frame, addresses, kind)
            return
        self._check_write(words, self.known[warps], frame, kind)
        agents = self._agent(warps)
        self.writer[words], self.written[words] = agents, self.known[warps, agents]
        clash = self.writer[words] != agents
        if clash.any() and kind.bytes >= _WORD:
            self._complain("written", "written by the same op", words, clash, self.writer, frame, kind)

    def _check_write(self, words: Any, known: Any, frame: Frame, kind: Kind | None) -> None:
        """``known``: vectors of the writers, one per word or one for all."""
        rows = np.arange(len(words)) if known.ndim > 1 else None

        def time(agents: Any) -> Any:
            return known[agents] if rows is None else known[rows, agents]

        late = self.written[words] > time(self.writer[words])
        if late.any():
            self._complain("written", "written", words, late, self.writer, frame, kind)
        for reader, at in zip(self.readers, self.read_at, strict=True):
            late = at[words] > time(reader[words])
            if late.any():
                self._complain("written", "read", words, late, reader, frame, kind)

    def _complain(self, what: str, before: str, words: Any, late: Any, agents: Any, frame: Frame, kind: Kind | None) -> None:
        first = int(np.flatnonzero(late)[0])
        word = int(words[first])
        place = self.unit.memory.where(self.start + word * _WORD)
        other = self._name(int(agents[word]))
        per_thread = 1 if kind is None else max(1, kind.bytes // _WORD)
        threads = np.unique(np.flatnonzero(late) // per_thread)
        raise Race(f"shared memory is {what} {place}, {before} by {other}, and nothing orders the two", threads)

    def _name(self, agent: int) -> str:
        if agent >= self.warps_per_cluster:
            return "an asynchronous operation"
        block, warp = divmod(agent, self.warps_per_block)
        where = f" of block {block} of the cluster" if self.unit.cluster > 1 else ""
        return f"warp {warp}{where}"

    # ------------------------------------------------------------------------------------------------------ synchronisation

    def barrier(self, frame: Frame) -> None:
        """All threads of the frame's blocks meet."""
        warps = np.unique(self._warps(frame))
        blocks = warps.reshape(-1, self.warps_per_block)
        for vectors in (self.known, self.fenced):
            together = vectors[blocks].max(axis=1, keepdims=True)
            vectors[blocks] = np.broadcast_to(together, vectors[blocks].shape)
        self._tick(warps)

    def _tick(self, warps: Any) -> None:
        self.known[warps, self._agent(warps)] += 1

    def release(self, frame: Frame, key: Any) -> None:
        """What these threads did is known to those who wait at ``key``."""
        warps = np.unique(self._warps(frame))
        self._give(key, self.known[warps].max(axis=0), self.fenced[warps].max(axis=0))
        self._tick(warps)

    def _give(self, key: Any, known: Any, fenced: Any) -> None:
        if key in self.objects:
            old_known, old_fenced = self.objects[key]
            known, fenced = np.maximum(known, old_known), np.maximum(fenced, old_fenced)
        self.objects[key] = (known, fenced)

    def acquire(self, frame: Frame, key: Any) -> None:
        """These threads have waited at ``key``."""
        if key in self.objects:
            self._take(frame, *self.objects[key])

    def _take(self, frame: Frame, known: Any, fenced: Any) -> None:
        warps = np.unique(self._warps(frame))
        self.known[warps] = np.maximum(self.known[warps], known)
        self.fenced[warps] = np.maximum(self.fenced[warps], fenced)

    def fence(self, frame: Frame) -> None:
        """fence.proxy.async: what these threads know of may be seen by asynchronous operations that follow."""
        warps = np.unique(self._warps(frame))
        self.fenced[warps] = np.maximum(self.fenced[warps], self.known[warps])
        self._tick(warps)

    # ------------------------------------------------------------------------------------------------------- asynchronous

    def _stamp(self, frame: Frame) -> tuple[int, Any, Any]:
        """A new asynchronous operation: its agent, what is ordered before it, what of that it may see."""
        warps = np.unique(self._warps(frame))
        slot = self.operations % _SLOTS
        self.operations += 1
        self.slot_times[slot] += 1
        agent = self.warps_per_cluster + slot
        known, fenced = self.known[warps].max(axis=0), self.fenced[warps].max(axis=0)
        known[agent] = fenced[agent] = self.slot_times[slot]
        return agent, known, fenced

    def _shared_words(self, places: Any) -> Any:
        touched = np.zeros(len(self.writer), bool)
        touched[(places - self.start) // _WORD] = True
        return np.flatnonzero(touched)

    def begin_write(self, frame: Frame, places: Any) -> Any:
        """A copy into shared memory is issued; returns its stamp."""
        agent, known, fenced = self._stamp(frame)
        words = self._shared_words(places)
        self._check_write(words, known, frame, None)
        self.writer[words], self.written[words] = agent, known[agent]
        return known, fenced

    def begin_read(self, frame: Frame, places: Any) -> Any:
        """A copy out of shared memory, or a product, is issued; returns its stamp."""
        agent, known, fenced = self._stamp(frame)
        words = self._shared_words(places)
        late = self.written[words] > known[self.writer[words]]
        if late.any():
            self._complain("read by an asynchronous operation", "written", words, late, self.writer, frame, None)
        ordinary = self.writer[words] < self.warps_per_cluster
        unseen = ordinary & (self.written[words] > fenced[self.writer[words]])
        if unseen.any():
            first = int(words[np.flatnonzero(unseen)[0]])
            place = self.unit.memory.where(self.start + first * _WORD)
            who = self._name(int(self.writer[first]))
            raise Race(f"an asynchronous operation reads {place}, which {who} wrote; fence.proxy.async is missing")
        self._note_read(words, np.full(len(words), agent), np.full(len(words), known[agent]))
        return known, fenced

    def complete(self, stamp: Any, key: Any) -> None:
        """The operation is done, and says so at ``key``."""
        self._give(key, *stamp)

    def acquire_stamp(self, frame: Frame, stamp: Any) -> None:
        """These threads have waited for the operation."""
        self._take(frame, *stamp)

    # ------------------------------------------------------------------------------------------------------ global memory

    def read_global(self, frame: Frame, addresses: Any, kind: Kind) -> None:
        """Threads read global memory."""
        if self.writes is not None:
            self.writes.read(frame, *self._elements(frame, addresses, kind))

    def write_global(self, frame: Frame, addresses: Any, kind: Kind) -> None:
        """Threads write global memory."""
        if self.writes is not None:
            self.writes.write(frame, *self._elements(frame, addresses, kind))

    def _elements(self, frame: Frame, addresses: Any, kind: Kind) -> tuple[Any, Any]:
        """Addresses of all elements, and the block of each; flat."""
        addresses = np.asarray(addresses if np.ndim(addresses) else frame.per_thread(addresses))
        if addresses.size and int(addresses.flat[0]) >= self.start:
            return _NOTHING  # shared memory of the unit, or what stands behind it: memory of single threads
        one_thread = frame.count == 1
        blocks = np.full(len(addresses), np.atleast_1d(frame.block)[0]) if one_thread else frame.per_thread(frame.block)
        if kind.count == 1:
            return addresses, blocks
        places = addresses[:, None] + np.arange(kind.count) * kind.dtype.itemsize
        return places.reshape(-1), np.repeat(blocks, kind.count)


class GlobalWrites:
    """Which block wrote each address of global memory in a launch."""

    def __init__(self, size: int) -> None:
        self.writer = np.full(size, -1, np.int32)

    def read(self, frame: Frame, addresses: Any, blocks: Any) -> None:
        """Blocks read elements."""
        writer = self.writer[addresses]
        self._check(frame, "reads", addresses, (writer >= 0) & (writer != blocks), writer)

    def write(self, frame: Frame, addresses: Any, blocks: Any) -> None:
        """Blocks write elements."""
        writer = self.writer[addresses]
        self._check(frame, "writes", addresses, (writer >= 0) & (writer != blocks), writer)
        self.writer[addresses] = blocks
        writer = self.writer[addresses]
        self._check(frame, "writes", addresses, writer != blocks, writer)

    def _check(self, frame: Frame, what: str, addresses: Any, wrong: Any, writers: Any) -> None:
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            place = frame.unit.memory.where(int(addresses[first]))
            thread = np.array([first * frame.count // len(addresses)])
            raise Race(f"a block {what} global memory that block {writers[first]} wrote in the same launch, {place}", thread)


_NOTHING = (np.zeros(0, np.int64), np.zeros(0, np.int64))
