"""The end of the table: the kernel table for people, and the launch plan together with all that a target ships."""

from __future__ import annotations

from dataclasses import dataclass, field

from mlirstack.errors import StageError
from mlirstack.passes.cuda.cubin import CubinCode
from mlirstack.passes.cuda.plan import LaunchPlan
from mlirstack.passes.cuda.resources import kernel_table
from mlirstack.passes.cuda.sass import SassCode, kernel_listings
from mlirstack.passes.iree.program import left_alone
from mlirstack.pipeline.step import Translation


@dataclass(frozen=True)
class KernelTable:
    """The kernel table as text, and the code it is about."""

    text: str
    sass: SassCode = field(repr=False)


@dataclass(frozen=True)
class PlannedCode:
    """A whole program: the plan, its kernels as a cubin, and the PTX that this was made from.

    ``text`` is the plan as JSON.
    """

    plan: LaunchPlan
    cubin: bytes = field(repr=False)
    ptx: str = field(repr=False)
    text: str = field(repr=False)


@dataclass(frozen=True)
class TabulateKernels(Translation):
    """Before: the listing of a cubin with its launch plan.  After: the same, shown as a :class:`KernelTable`."""

    name = "mlirstack-tabulate-kernels"

    def translate(self, payload: SassCode | str) -> KernelTable:
        sass = _complete(payload)
        plan = _plan(sass.code)
        return KernelTable(kernel_table(plan, kernel_listings(sass.text), left_alone(plan.program)), sass)


@dataclass(frozen=True)
class WritePlan(Translation):
    """Before: a cubin, or a listing or table of its kernels.  After: the :class:`PlannedCode` that a target executes."""

    name = "mlirstack-write-plan"

    def translate(self, payload: KernelTable | SassCode | CubinCode | bytes | str) -> PlannedCode:
        if isinstance(payload, (CubinCode, bytes)):
            code = CubinCode.read(payload)
        else:
            code = (payload.sass if isinstance(payload, KernelTable) else _complete(payload)).code
        plan = _plan(code)
        return PlannedCode(plan, code.cubin, code.ptx.body, plan.to_json(indent=1) + "\n")


def _complete(payload: SassCode | str) -> SassCode:
    if isinstance(payload, str):
        raise StageError(
            "a listing holds neither the cubin nor the launch plan", stage="plan", hint="resume from stage 'cubin'"
        )
    return payload


def _plan(code: CubinCode) -> LaunchPlan:
    if code.plan is None:
        raise StageError("these kernels come without a launch plan", stage="plan", hint="lower a module with @main")
    return code.plan
