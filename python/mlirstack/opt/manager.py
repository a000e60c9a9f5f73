"""One plan over one module: a pass manager with its instrumentation, native passes and Python steps in a single run."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from mlirstack.bindings import core
from mlirstack.opt.elements import Element, Plan
from mlirstack.opt.flags import FlagError, Invocation

if TYPE_CHECKING:
    from mlirstack.opt.tree import Tree
    from mlirstack.pipeline.step import Step, Translation

IR_PRINTING = tuple(f"mlir-print-ir-{when}" for when in ("before", "after", "before-all", "after-all", "after-failure"))
_CULPRITS = (r"'([^']+)' does not refer", r"no such option (\S+)", r"failed to add `([^`]+)`")


class Tracing(NamedTuple):
    """How to print before each pass, to find the one that fails: the entire module, or as little as possible."""

    module_scope: bool


def build(plan: Plan, context: Any, module: Any, caught: list[BaseException]) -> tuple[Any, tuple[Translation, ...]]:
    """The pass manager of ``plan`` for ``module``, and the translations that follow it.

    What a Python step raises is kept in ``caught``, since an exception must not pass through native code.
    :class:`FlagError` with a caret where MLIR does not accept the pipeline.
    """
    passes = core()[1]
    try:
        if plan.anchored is not None:
            return passes.PassManager.parse(plan.anchored, context), ()
        manager = passes.PassManager(module.operation.name, context)
        rest = list(plan.elements)
        while rest and not _is_translation(rest[0]):
            element = rest.pop(0)
            if element.step is None:
                manager.add(element.text)
            else:
                step = element.step
                manager.add(_callback(step, module, caught), name=type(step).__name__, argument=step.name)
    except ValueError as error:
        raise FlagError(_explain(plan.text(module.operation.name), str(error).strip())) from None
    return manager, only_translations(Plan(tuple(rest)))


def only_translations(plan: Plan) -> tuple[Translation, ...]:
    """The steps of a plan for what has left MLIR; :class:`FlagError` where one of them is a pass."""
    passes = [element for element in plan.elements if not _is_translation(element)]
    if passes:
        before = f"after '{plan.elements[0].text}', which leaves MLIR" if passes[0] != plan.elements[0] else "outside MLIR"
        raise FlagError(f"error: '{passes[0].text}' cannot run {before}")
    return tuple(element.step for element in plan.elements)  # type: ignore[misc]


def _is_translation(element: Element) -> bool:
    if element.step is None:
        return False
    from mlirstack.pipeline.step import Translation

    return isinstance(element.step, Translation)


def _callback(step: Step, module: Any, caught: list[BaseException]) -> Callable[[Any, Any], None]:
    from mlirstack.bindings import ir
    from mlirstack.errors import MlirstackError
    from mlirstack.pipeline.runner import apply_schedule
    from mlirstack.pipeline.step import PythonPass, Schedule

    def run(operation: Any, this: Any) -> None:
        try:
            with module.context, ir.Location.unknown():
                if isinstance(step, PythonPass):
                    step.apply(module)
                elif isinstance(step, Schedule):
                    text = step.build(module)
                    if text is not None:
                        apply_schedule(module, text, entry=step.entry_point)
        except MlirstackError as error:
            hint = f"\nhint: {error.hint}" if error.hint else ""
            module.operation.location.emit_error(f"pass '{step.name}': {error.message}{hint}")
            this.signal_pass_failure()
        except ir.MLIRError:  # its diagnostics have been shown
            this.signal_pass_failure()
        except Exception as error:
            module.operation.location.emit_error(raised(step.name, error))
            this.signal_pass_failure()
        except BaseException as error:
            caught.append(error)
            this.signal_pass_failure()

    return run


def raised(name: str, error: Exception) -> str:
    """What is said of an exception that no step should raise: a defect of the step, with the place."""
    import traceback

    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"pass '{name}' raised {type(error).__name__}: {error} ({at.filename}:{at.lineno})"


def instrument(manager: Any, invocation: Invocation, tracing: Tracing | None = None, tree: Tree | None = None) -> None:
    """Switch on what the command line asks for; with ``tracing``, printing before every pass and nothing else.

    A ``tree`` takes the place of --mlir-print-ir-tree-dir.
    """
    manager.enable_verifier(invocation.on("verify-each"))
    if tracing:
        limit = None if tracing.module_scope else 1
        manager.enable_ir_printing(
            print_before_all=True,
            print_after_all=False,
            print_module_scope=tracing.module_scope,
            large_elements_limit=limit,
            large_resource_limit=limit,
        )
        return
    before, after = invocation.names("mlir-print-ir-before"), invocation.names("mlir-print-ir-after")
    before_all, after_all = invocation.on("mlir-print-ir-before-all"), invocation.on("mlir-print-ir-after-all")
    failure, change = invocation.on("mlir-print-ir-after-failure"), invocation.on("mlir-print-ir-after-change")
    if before or after or before_all or after_all or failure:
        manager.enable_ir_printing(
            print_before_all=bool(before or before_all),
            print_after_all=bool(after or after_all or failure),
            print_module_scope=invocation.on("mlir-print-ir-module-scope"),
            print_after_change=change,
            print_after_failure=failure,
            large_elements_limit=invocation.number("mlir-elide-elementsattrs-if-larger"),
            large_resource_limit=invocation.number("mlir-elide-resource-strings-if-larger"),
            enable_debug_info=invocation.on("mlir-print-debuginfo"),
            print_generic_op_form=invocation.on("mlir-print-op-generic"),
            tree_printing_dir_path=tree.written if tree else invocation.text("mlir-print-ir-tree-dir"),
        )
    if invocation.on("mlir-timing"):
        manager.enable_timing()
    if invocation.on("mlir-pass-statistics"):
        display = core()[1].PassDisplayMode
        as_list = invocation("mlir-pass-statistics-display") == "list"
        manager.enable_statistics(display.LIST if as_list else display.PIPELINE)


def check_printing(invocation: Invocation) -> None:
    """Refuse what the bindings' IR printing between passes cannot do; :class:`FlagError`."""
    asked = [f"--{flag}" for flag in IR_PRINTING if invocation(flag)]
    if not asked:
        return
    for flag in (
        "pretty-debuginfo",
        "print-local-scope",
        "print-skip-regions",
        "print-value-users",
        "use-nameloc-as-prefix",
    ):
        if invocation.on(f"mlir-{flag}"):
            raise FlagError(
                f"error: --mlir-{flag} is not supported together with {asked[0]}: the bindings' IR printing lacks it"
            )


def _explain(text: str, message: str) -> str:
    """MLIR's message about a pipeline, a caret under the word it speaks of, and the nearest valid names."""
    from mlirstack.errors import PipelineError
    from mlirstack.pipeline.parse import parse_pipeline
    from mlirstack.pipeline.registry import native_passes, nearest, python_steps

    lines = [f"<unknown>:0: error: {message}"]
    found = next((m for p in _CULPRITS if (m := re.search(p, message, re.DOTALL))), None)
    if not found:  # a mistake of syntax, for which MLIR shows no place
        try:
            parse_pipeline(text)
        except PipelineError as error:
            lines.append(error.message)
        return "\n".join(lines)
    word = re.search(rf"(?<![\w-]){re.escape(found[1])}(?![\w-])", text)
    if word:
        lines.append(f"pass pipeline:1:{word.start() + 1}:\n  {text}\n  {' ' * word.start()}^")
    if "does not refer" in message:
        close = nearest(found[1], [*native_passes(), *python_steps()])
    elif "no such option" in message and (owner := re.search(r"failed to add `([^`]+)`", message)):
        options = native_passes().get(owner[1], {"options": []})["options"]
        close = nearest(found[1], options) + f"\nhint: options of {owner[1]}: {', '.join(options) or 'none'}"
    else:
        close = ""
    return "\n".join([*lines, *(part for part in [close.removeprefix("; ").strip()] if part)])


def pretty(text: str) -> str:
    """Pipeline text over several lines, as --dump-pass-pipeline prints it, with the number of its passes."""
    anchor, _, inner = text.partition("(")
    parts = _parts(inner[:-1])
    return f"Pass Manager with {len(parts)} passes:\n{anchor}(\n{_indented(parts, 2)}\n)\n\n"


def _indented(parts: list[str], indent: int) -> str:
    lines = []
    for part in parts:
        nested = re.match(r"([\w.]+)\((.*)\)$", part, re.DOTALL)
        if nested:
            lines.append(f"{' ' * indent}{nested[1]}(\n{_indented(_parts(nested[2]), indent + 2)}\n{' ' * indent})")
        else:
            lines.append(" " * indent + part)
    return ",\n".join(lines)


def _parts(text: str) -> list[str]:
    """The elements of a pipeline: split at the commas outside of all brackets."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "({") - (char in ")}")
        if char == "," and not depth:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]] if text else []
