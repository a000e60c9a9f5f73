"""Reductions and what stands around them: softmax, norms, sums over any dimensions, argmax, in one kernel where that can be.

A row is held in registers where it fits; where there are many, blocks stay for several; longer ones are read once per pass;
few long rows are shared by many blocks, whose partial results a second kernel combines in a fixed order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlirstack.ir import kernels
from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.emitter import Parameters
from mlirstack.schedules.cuda.graph import KernelGraph
from mlirstack.schedules.cuda.instructions.reduce import WARP
from mlirstack.schedules.cuda.stream import row_choice, row_claim
from mlirstack.schedules.cuda.stream.row_kernel import RowKernel, allocate_partials
from mlirstack.schedules.cuda.stream.row_pipeline import StayingRows
from mlirstack.schedules.cuda.stream.row_plan import RowPlan, row_plan
from mlirstack.schedules.cuda.stream.row_team import SCHEDULE, Shape


class Rows:
    """Parameters: ``mode`` (resident, staying, looped or split), and those of ``Shape``."""

    name = SCHEDULE
    kernel_class = kernels.REDUCTION
    takes_extents = True

    def claim(self, operations: Sequence[Any], device: Device) -> list[list[Any]]:
        """Groups of ops that this emitter takes; see :mod:`.row_claim`."""
        return row_claim.claim(operations)

    def choose(self, graph: KernelGraph, device: Device) -> Parameters | None:
        """See :class:`~mlirstack.schedules.cuda.emitter.Emitter`."""
        plan = row_plan(graph)
        return None if plan is None else _parameters(*row_choice.best(plan, device))

    def candidates(self, graph: KernelGraph, device: Device) -> list[Parameters]:
        """Other sizes of teams and blocks, and the other ways to walk over the columns."""
        plan = row_plan(graph)
        return [] if plan is None else [_parameters(*way) for way in row_choice.candidates(plan, device)]

    def emit(self, function: Any, graph: KernelGraph, parameters: Parameters, device: Device) -> None:
        """One kernel, or two for mode "split"; see :class:`~mlirstack.schedules.cuda.emitter.Emitter`."""
        plan = row_plan(graph)
        assert plan is not None, "the graph is the one that the parameters were chosen for"
        shape = Shape(**{name: value for name, value in parameters.items() if name != "mode"})  # type: ignore[arg-type]
        mode = parameters["mode"]
        if mode == "split":
            _emit_split(function, plan, shape)
        elif mode == "staying":
            StayingRows(function, plan, shape, plan.accesses).write()
        elif mode == "looped":
            RowKernel(function, plan, shape, plan.accesses).write_looped()
        else:
            RowKernel(function, plan, shape, plan.accesses).write_resident()


def _emit_split(function: Any, plan: RowPlan, shape: Shape) -> None:
    partials = allocate_partials(function, plan, shape.splits)
    RowKernel(function, plan, shape, plan.reads, suffix="_parts").write_partial(partials)
    if plan.along_columns:
        team = row_choice.power_of_two(min(shape.splits, 256))
        threads = max(128, team) if team > WARP or plan.row_count > 1 else WARP
        team = threads if team > WARP else team
    else:
        threads, team = 256, row_choice.power_of_two(min(shape.splits, 8))
    last = Shape(threads, team, 1, -(-shape.splits // team))
    results = [plan.space.writes[tensor] for tensor in plan.results]
    RowKernel(function, plan, last, [*plan.row_reads, *results], suffix="_total").write_final(partials, shape.splits)


def _parameters(mode: str, shape: Shape) -> Parameters:
    """What is not as usual is left out, as far as it came later than the first tuning tables."""
    usual = Shape(shape.threads, shape.team, shape.vector, shape.count)
    more = ("stages", "rows", "together", "past_l1")
    return {
        "mode": mode, "threads": shape.threads, "team": shape.team, "vector": shape.vector, "count": shape.count,
        "splits": shape.splits, "cluster": shape.cluster, "stream": shape.stream,
        **{name: getattr(shape, name) for name in more if getattr(shape, name) != getattr(usual, name)},
    }  # fmt: skip
