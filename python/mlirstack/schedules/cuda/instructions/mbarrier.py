"""Barriers in shared memory (mbarrier, sm_90), and rings of stages that producers fill and consumers empty.

Every function writes one instruction, as an op of the NVVM dialect where there is one.  PTX ISA, "mbarrier".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.values import Int, Number

BARRIER_BYTES = 8
_POLL_NANOSECONDS = 10_000_000  # how long a waiting thread may sleep before it looks again


def initialize_barrier(kernel: Kernel, barrier: Any, arrivals: int) -> None:
    """A barrier whose phase ends after ``arrivals`` arrivals and all announced bytes.  One thread does it."""
    dialect("nvvm").MBarrierInitOp(barrier, kernel.integer(arrivals).value)


def publish_barriers() -> None:
    """Make initialised barriers visible to the copy engine and to the other blocks of the cluster."""
    dialect("nvvm").FenceMbarrierInitOp()


def wait(kernel: Kernel, barrier: Any, phase: Number) -> None:
    """Wait until the phase of this parity (0 first) has ended.  A parity two phases old looks like the present one."""
    ticks = kernel.integer(_POLL_NANOSECONDS).value
    parity = phase if isinstance(phase, Int) else kernel.integer(phase)
    dialect("nvvm").MBarrierTryWaitParityOp(barrier, parity.value, ticks)


def arrive(barrier: Any) -> None:
    """Arrive at a barrier of this block (``!llvm.ptr<3>``) or of the cluster (``!llvm.ptr<7>``, see
    :func:`~mlirstack.schedules.cuda.instructions.shared_memory.of_block`).

    The default semantics, release in the block, are enough, and all that may be asked for: ``.release.cluster`` makes
    ptxas put a ``MEMBAR.ALL.GPU`` before every arrival (measured: matrix products 25 to 55 % slower).
    """
    remote = str(barrier.type) == "!llvm.ptr<7>"
    results = [] if remote else [ir.IntegerType.get_signless(64)]
    dialect("nvvm").MBarrierArriveOp(barrier, results=results)


def arrive_expecting(kernel: Kernel, barrier: Any, size: Number) -> None:
    """Arrive, and announce ``size`` bytes that copies will bring before the phase may end."""
    raw = size if isinstance(size, Int) else kernel.integer(size)
    dialect("nvvm").MBarrierArriveExpectTxOp(barrier, raw.value, results=[kernel.i64])


@dataclass(frozen=True)
class Stage:
    """A buffer of a ring and how often the ring has been gone round, modulo 2."""

    index: Int
    phase: Int


@dataclass(frozen=True)
class Ring:
    """Buffers that a producer fills and consumers empty: a barrier "full" and a barrier "empty" for each.

    ``barriers`` is where they are in shared memory (``16 * stages`` bytes); ``arrivals`` how many consumers release a
    buffer.
    """

    kernel: Kernel
    barriers: Any
    stages: int
    arrivals: int

    @staticmethod
    def bytes(stages: int) -> int:
        """Shared memory of the barriers."""
        return 2 * BARRIER_BYTES * stages

    def full(self, stage: Number) -> Any:
        """The barrier whose phase ends when a buffer has been filled."""
        return self.kernel.offset(self.barriers, stage * BARRIER_BYTES)

    def empty(self, stage: Number) -> Any:
        """The barrier whose phase ends when a buffer has been read."""
        return self.kernel.offset(self.barriers, stage * BARRIER_BYTES + BARRIER_BYTES * self.stages)

    def initialize(self) -> None:
        """By one thread, before :func:`publish_barriers`."""
        for stage in range(self.stages):
            initialize_barrier(self.kernel, self.full(stage), 1)
            initialize_barrier(self.kernel, self.empty(stage), self.arrivals)

    def first(self) -> Stage:
        """Where producer and consumers begin."""
        return Stage(self.kernel.integer(0), self.kernel.integer(0))

    def next(self, stage: Stage) -> Stage:
        """The next buffer."""
        if self.stages == 1:
            return Stage(stage.index, stage.phase ^ 1)
        following = stage.index + 1
        wraps = following.equals(self.stages)
        return Stage(wraps.select(self.kernel.integer(0), following), wraps.select(stage.phase ^ 1, stage.phase))

    def before(self, stage: Stage, distance: int) -> Int:
        """Number of the buffer so many before, less than there are."""
        wraps = stage.index < distance
        return wraps.select(stage.index + (self.stages - distance), stage.index - distance)

    def wait_full(self, stage: Stage) -> None:
        """As a consumer: until the buffer is filled."""
        wait(self.kernel, self.full(stage.index), stage.phase)

    def wait_empty(self, stage: Stage) -> None:
        """As the producer: until the buffer is free.  At first it is: the phase before the first one is over."""
        wait(self.kernel, self.empty(stage.index), stage.phase ^ 1)
