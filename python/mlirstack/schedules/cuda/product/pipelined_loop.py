"""The main loop of a matrix product: tiles of K in flight in shared memory, fragments in registers one step ahead.

What a step multiplies is the subclass's: tensor cores (:mod:`~mlirstack.schedules.cuda.product.mma_loop`) or FMA
(:mod:`~mlirstack.schedules.cuda.product.fma_loop`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.schedules.cuda.instructions import tensor_core
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.product.copies import Copies
from mlirstack.schedules.cuda.values import Int


@dataclass(frozen=True)
class Stages:
    """``count`` stages in shared memory, each with a tile of A and one of B (sizes in bytes)."""

    count: int
    a_bytes: int
    b_bytes: int

    @property
    def stage_bytes(self) -> int:
        """Size of one stage."""
        return self.a_bytes + self.b_bytes

    @property
    def bytes(self) -> int:
        """Size of all stages."""
        return self.count * self.stage_bytes


class PipelinedLoop(ABC):
    """The loop over tiles of K.  A tile is multiplied in ``steps`` steps."""

    def __init__(self, kernel: Kernel, stages: Stages, steps: int, a: Copies, b: Copies, shared: Any) -> None:
        if steps < 2 or stages.count < 2:
            raise ValueError("fragments are loaded a step ahead, tiles a stage ahead: both need two")
        self.kernel = kernel
        self._stages, self._steps = stages, steps
        self._a, self._b, self._shared = a, b, shared

    @abstractmethod
    def fragments(self, a: Any, b: Any, step: int) -> list[Any]:
        """What step ``step`` multiplies, from the tiles at ``a`` and ``b``."""

    @abstractmethod
    def multiply(self, fragments: Sequence[Any], sums: Sequence[Any]) -> list[Any]:
        """The sums after one step."""

    @abstractmethod
    def zeros(self) -> list[Any]:
        """The sums at the start."""

    def run(self, first: Int, k_tiles: int) -> list[Any]:
        """The sums over ``k_tiles`` tiles from tile ``first`` on; then no thread needs shared memory any more."""
        kernel, count = self.kernel, self._stages.count
        ahead = count - 1
        for stage in range(ahead):
            if stage < k_tiles:
                where = self._stage(kernel.integer(stage))
                self._finish(self._start(first + stage, where), where)
            tensor_core.commit_copies()
        self._wait()
        slots = [kernel.integer(0), kernel.integer(ahead)]
        fragments = self._fragments(self._stage(slots[0]), 0)
        carried = [*slots, *fragments, *self.zeros()]
        split = len(fragments)
        if k_tiles > ahead:
            carried = kernel.loop(
                0, k_tiles - ahead, 1, carried, lambda i, *c: self._body(c, split, tile_ahead=first + i + ahead)
            )
        if min(ahead, k_tiles) > 1:
            carried = kernel.loop(0, min(ahead, k_tiles) - 1, 1, carried, lambda i, *c: self._body(c, split))
        carried = self._body(carried, split, is_last=True)
        kernel.barrier()
        return list(carried[2 + split :])

    def _body(
        self, carried: Sequence[Any], split: int, *, tile_ahead: Int | None = None, is_last: bool = False
    ) -> list[Any]:
        """One tile of K, whose first ``split`` values after the slots are fragments; starts the copy of ``tile_ahead``."""
        read, write, *values = carried
        fragments, sums = values[:split], values[split:]
        staged: tuple[list[Any], list[Any]] = ([], [])
        target = self._stage(write)
        for step in range(self._steps):
            following = fragments
            if step == self._steps - 1 and not is_last:
                if tile_ahead is not None:
                    self._finish(staged, target)
                self._wait()
                read = self._next(read)
            if step < self._steps - 1 or not is_last:
                following = self._fragments(self._stage(read), (step + 1) % self._steps)
            if step == 0:
                if tile_ahead is not None:
                    staged = self._start(tile_ahead, target)
                if not is_last:
                    tensor_core.commit_copies()  # an empty group counts too
            sums = self.multiply(fragments, sums)
            fragments = following
        return [read, self._next(write), *fragments, *sums]

    def _wait(self) -> None:
        """The next tile has arrived, for all threads, and none reads the oldest one any more."""
        tensor_core.wait_for_copies(self._stages.count - 2)
        self.kernel.barrier()

    def _stage(self, slot: Int) -> Any:
        return self.kernel.offset(self._shared, slot * self._stages.stage_bytes)

    def _next(self, slot: Int) -> Int:
        following = slot + 1
        return following.equals(self._stages.count).select(self.kernel.integer(0), following)

    def _b_of(self, stage: Any) -> Any:
        return self.kernel.offset(stage, self._stages.a_bytes)

    def _start(self, k_tile: Int, stage: Any) -> tuple[list[Any], list[Any]]:
        return self._a.start(k_tile, stage), self._b.start(k_tile, self._b_of(stage))

    def _finish(self, staged: tuple[list[Any], list[Any]], stage: Any) -> None:
        self._a.finish(staged[0], stage)
        self._b.finish(staged[1], self._b_of(stage))

    def _fragments(self, stage: Any, step: int) -> list[Any]:
        return self.fragments(stage, self._b_of(stage), step)
