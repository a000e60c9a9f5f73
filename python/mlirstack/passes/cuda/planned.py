"""The end of the table: the kernel table for people, and the launch plan together with all that a target ships."""

from __future__ import annotations

from dataclasses import dataclass, field

from mlirstack.errors import StageError
from mlirstack.passes.cuda.plan import LaunchPlan
from mlirstack.passes.cuda.resources import kernel_table
from mlirstack.passes.cuda.sass import SassCode, kernel_listings
from mlirstack.pipeline.step import Translation


@dataclass(frozen=True)
class KernelTable:
    """The kernel table as text, and the code it is about."""

    text: str
    sass: SassCode = field(repr=False)


@dataclass(frozen=True)
class PlannedCode:
    """A whole program: the plan, its kernels as a cubin, as the PTX that this was made from and as a listing.

    ``text`` is the plan as JSON.
    """

    plan: LaunchPlan
    cubin: bytes = field(repr=False)
    ptx: str = field(repr=False)
    sass: str = field(repr=False)
    text: str = field(repr=False)


@dataclass(frozen=True)
class TabulateKernels(Translation):
    """Before: the listing of a cubin with its launch plan.  After: the same, shown as a :class:`KernelTable`."""

    name = "mlirstack-tabulate-kernels"

    def translate(self, payload: SassCode | str) -> KernelTable:
        sass = _complete(payload)
        return KernelTable(kernel_table(_plan(sass), kernel_listings(sass.text)), sass)


@dataclass(frozen=True)
class WritePlan(Translation):
    """Before: a kernel table, or the listing it is made from.  After: the :class:`PlannedCode` that a target executes."""

    name = "mlirstack-write-plan"

    def translate(self, payload: KernelTable | SassCode | str) -> PlannedCode:
        sass = payload.sass if isinstance(payload, KernelTable) else _complete(payload)
        plan = _plan(sass)
        return PlannedCode(plan, sass.code.cubin, sass.code.ptx.body, sass.text, plan.to_json(indent=1) + "\n")


def _complete(payload: SassCode | str) -> SassCode:
    if isinstance(payload, str):
        raise StageError(
            "a listing holds neither the cubin nor the launch plan", stage="plan", hint="resume from stage 'cubin'"
        )
    return payload


def _plan(sass: SassCode) -> LaunchPlan:
    plan = sass.code.plan
    if plan is None:
        raise StageError("these kernels come without a launch plan", stage="plan", hint="lower a module with @main")
    return plan
