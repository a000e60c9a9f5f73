"""Device code as text, together with the launch plan: what travels from the NVVM dialect through LLVM IR to PTX.

The plan is made where the host functions are left behind and rides along as a comment at the end of the text, so that a
lowering can be taken up again from a file of any later stage.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from mlirstack.bindings import ir, translate_to_llvm_ir
from mlirstack.errors import StageError
from mlirstack.ir.diagnostics import source_line
from mlirstack.ir.ops import functions, walk
from mlirstack.ir.text import clone_module
from mlirstack.passes.cuda.plan import LaunchPlan
from mlirstack.passes.cuda.plan_writer import plan_of
from mlirstack.passes.iree.program import PROGRAM
from mlirstack.passes.llvm_ir import classic_spelling
from mlirstack.pipeline.step import Translation

TRIPLE = "nvptx64-nvidia-cuda"
PLAN_HEADING = "mlirstack launch plan"
LLVM_COMMENT, PTX_COMMENT = ";", "//"
_TRANSLATED = ("llvm", "nvvm")


@dataclass(frozen=True)
class DeviceCode:
    """Kernels as LLVM IR or PTX, and the plan that launches them (None where there is no host side).

    ``comment`` is what begins a comment at this level.
    """

    body: str
    plan: LaunchPlan | None = field(repr=False)
    comment: str

    @property
    def text(self) -> str:
        """The code, and after it the plan as a comment."""
        if self.plan is None:
            return self.body
        lines = [PLAN_HEADING, *self.plan.to_json(indent=1).splitlines()]
        return self.body.rstrip("\n") + "\n\n" + "".join(f"{self.comment} {line}\n" for line in lines)

    @staticmethod
    def read(payload: DeviceCode | str, comment: str) -> DeviceCode:
        """Inverse of :attr:`text`; a payload that was not printed in between comes back as it is."""
        if isinstance(payload, DeviceCode):
            return payload
        body, heading, rest = payload.partition(f"{comment} {PLAN_HEADING}\n")
        if not heading:
            return DeviceCode(payload, None, comment)
        lines = [line.removeprefix(comment) for line in rest.splitlines() if line.startswith(comment)]
        try:
            plan = LaunchPlan.from_json("\n".join(lines))
        except (ValueError, KeyError, TypeError) as error:
            raise StageError(f"the launch plan at the end of the text cannot be read: {error}", stage="ptx") from None
        return DeviceCode(body, plan, comment)


@dataclass(frozen=True)
class TranslateKernels(Translation):
    """Before: ``gpu.module``s in the LLVM and NVVM dialects, host functions around them.  After: all kernels as one LLVM IR
    module, the host functions as a launch plan (:class:`DeviceCode`)."""

    name = "mlirstack-translate-kernels"

    def translate(self, payload: Any) -> DeviceCode:
        _check_translated(payload)
        with payload.context, ir.Location.unknown():
            merged = _merged(clone_module(payload))
            text = translate_to_llvm_ir(merged.operation)
        return DeviceCode(_convergent_assembly(classic_spelling(text)), _plan_of(payload), LLVM_COMMENT)


def _plan_of(module: Any) -> LaunchPlan | None:
    """The plan of the host functions, if there are any, here or in a program that rides along."""
    has_host = PROGRAM in module.operation.attributes or next(functions(module), None) is not None
    return plan_of(module) if has_host else None


def _check_translated(module: Any) -> None:
    """:class:`StageError` for an operation in a ``gpu.module`` that has no translation: the bindings would crash on it."""
    for kernels in _gpu_modules(module):
        for op in walk(kernels):
            if op.name.split(".", 1)[0] not in _TRANSLATED:
                raise StageError(
                    f"'{op.name}' has no translation to LLVM IR",
                    stage="llvmir",
                    op=op.name,
                    location=source_line(op.location),
                )


def _gpu_modules(module: Any) -> list[Any]:
    return [op for op in module.body.operations if op.operation.name == "gpu.module"]


def _merged(module: Any) -> Any:
    """What stands in the ``gpu.module``s of ``module`` (taken apart) as one module of the LLVM dialect.

    Kernels keep their names, which the plan knows; a helper or a global whose name is taken gets another one.  Declarations
    are written once.
    """
    merged = ir.Module.create()
    merged.operation.attributes["llvm.target_triple"] = ir.StringAttr.get(TRIPLE)
    declared: dict[str, str] = {}
    taken = {_symbol(op) for kernels in _gpu_modules(module) for op in _body(kernels) if _is_kernel(op)}
    for kernels in _gpu_modules(module):
        for op in list(_body(kernels)):
            name = _symbol(op)
            if _is_declaration(op) and declared.setdefault(name, _declared(op)) == _declared(op):
                if name in taken:
                    continue
            elif name in taken and not _is_kernel(op):
                if op.operation.name == "llvm.func" and _is_declaration(op):
                    raise StageError(f"kernels declare '{name}' in different ways", stage="llvmir")
                fresh = _fresh_name(name, taken)
                ir.SymbolTable.replace_all_symbol_uses(name, fresh, kernels.operation)
                ir.SymbolTable.set_symbol_name(op, fresh)
                name = fresh
            taken.add(name)
            merged.body.append(op)
    return merged


def _declared(op: Any) -> str:
    """What two declarations of one symbol must agree on: of functions the type, not what passes have found out besides."""
    if op.operation.name == "llvm.func":
        return str(op.attributes["function_type"])
    return ", ".join(f"{name} = {op.attributes[name]}" for name in op.attributes)


def _body(kernels: Any) -> list[Any]:
    return list(kernels.regions[0].blocks[0].operations)


def _symbol(op: Any) -> str:
    return ir.StringAttr(op.attributes["sym_name"]).value


def _is_kernel(op: Any) -> bool:
    return "nvvm.kernel" in op.attributes


def _is_declaration(op: Any) -> bool:
    """A function without a body, or memory that is given at launch: dynamic shared memory."""
    if op.operation.name == "llvm.mlir.global":
        return str(op.attributes["linkage"]) == "#llvm.linkage<external>"
    return not op.regions[0].blocks


def _fresh_name(name: str, taken: set[str]) -> str:
    number = 1
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"


_ASSEMBLY_CALL = re.compile(r"^(\s*(?:%\S+ = )?(?:tail )?call .* asm .*\))((?: #\d+)?(?:, !.*)?)$")


def _convergent_assembly(text: str) -> str:
    """``text`` with inline assembly that has effects or works on whole warps marked as convergent.

    MLIR has no such mark, and LLVM would be free to copy a barrier into both sides of a branch.
    """
    lines = [
        _ASSEMBLY_CALL.sub(r"\1 convergent\2", line)
        if " asm " in line and ("sideeffect" in line or ".sync" in line)
        else line
        for line in text.splitlines()
    ]
    return "\n".join(lines) + "\n"
