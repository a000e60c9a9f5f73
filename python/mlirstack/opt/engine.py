"""One chunk of the input: parse, verify, run the plans, print.

Each chunk has a context of its own, in which dialects are loaded when they are first needed, as in mlir-opt.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlirstack.bindings import UNREGISTERED_DIALECTS, core, lazy_context, load_unregistered_dialects
from mlirstack.opt import printing
from mlirstack.opt.diagnostics import Printer, emit
from mlirstack.opt.elements import MODULE, REPRODUCER, Plan, plans, reproducer_of
from mlirstack.opt.flags import FlagError, Invocation
from mlirstack.opt.manager import Tracing, build, instrument, only_translations, pretty, raised
from mlirstack.opt.resources import DROPPED, Resources, external_resources
from mlirstack.opt.source import Chunk
from mlirstack.opt.tree import Tree
from mlirstack.opt.verify import Verifier

if TYPE_CHECKING:
    from mlirstack.opt.timing import Report

_SHOWS_LOCATIONS = re.compile(r"location|debug-info|di-scope|mlirstack-|iree-")


class Phase:
    """What is being done to a chunk, for the report of a crash."""

    PARSING = 1
    PASSES = 2
    PRINTING = 3


def run_chunk(
    chunk: Chunk,
    invocation: Invocation,
    tell: Callable[[int], None],
    timing: Report | None = None,
    tracing: Tracing | None = None,
) -> tuple[bool, bytes]:
    """Process one chunk; returns success and the output.  ``tell`` hears of each :class:`Phase`."""
    ir = core()[0]
    level = invocation.text("verify-diagnostics")
    context = lazy_context()
    context.allow_unregistered_dialects = invocation.on("allow-unregistered-dialect")
    handler: Verifier | Printer
    if level is not None:
        handler = Verifier(chunk, level)
    else:
        handler = Printer(
            chunk.source,
            verbosity=str(invocation("mlir-diagnostic-verbosity-level")),
            notes=not invocation.on("mlir-disable-diagnostic-notes"),
            operation=invocation.on("mlir-print-op-on-diagnostic"),
        )
    as_text = not (chunk.source.is_bytecode or invocation.on("emit-bytecode"))  # bytecode does lose external resources
    resources = _passed_through(chunk, invocation) if as_text else {}

    def handle(diagnostic: Any) -> bool:
        return (as_text and diagnostic.message.startswith(DROPPED)) or handler(diagnostic)

    attached = context.attach_diagnostic_handler(handle)
    succeeded, out = False, b""
    try:
        tell(Phase.PARSING)
        started = time.perf_counter()
        module = parse(chunk, invocation, context)
        if timing:
            timing.add("Parser", time.perf_counter() - started)
        if not invocation.on("verify-roundtrip") or _round_trips(module, invocation, context):
            succeeded, out = _transform(chunk, invocation, context, module, tell, timing, tracing, resources)
    except ir.MLIRError:
        pass  # the handler has shown why
    finally:
        attached.detach()
    if isinstance(handler, Verifier):
        return handler.finish(), out
    return succeeded, out


def _passed_through(chunk: Chunk, invocation: Invocation) -> Resources:
    """The external resources of a text that the output is to hold again."""
    found = external_resources(chunk.text())
    if invocation.on("run-reproducer"):  # which has read it
        found.pop(REPRODUCER, None)
    return found


def parse(chunk: Chunk, invocation: Invocation, context: Any) -> Any:
    """The chunk as a module, or with --no-implicit-module as the operation it is; MLIRError where it is not valid."""
    ir = core()[0]
    source, data = chunk.source, chunk.data
    mentioned = tuple(d for d in UNREGISTERED_DIALECTS if re.search(rb"\b" + d.encode() + rb"\b", data))
    if mentioned:
        load_unregistered_dialects(context, mentioned)
    irdl = invocation.text("irdl-file")
    if irdl is not None:
        from mlirstack.bindings import dialect

        if not Path(irdl).is_file():
            raise FlagError(f"cannot open IRDL file '{irdl}': No such file or directory")
        with context:
            dialect("irdl").load_dialects(ir.Module.parseFile(irdl, context))
    if invocation.on("no-implicit-module"):
        if source.is_bytecode:
            raise FlagError("error: --no-implicit-module is not supported for bytecode: the bindings read it as a module")
        return ir.Operation.parse(chunk.placed_text(), source_name=source.name, context=context)
    if chunk.whole and source.path is not None:
        return ir.Module.parseFile(str(source.path), context)
    module = ir.Module.parse(data if source.is_bytecode else chunk.placed_text(), context)
    if _locations_show(invocation):
        return _with_file_name(module, chunk, context)
    return module


def _locations_show(invocation: Invocation) -> bool:
    """Does the file name in locations matter for the result?"""
    flags = ("mlir-print-debuginfo", "mlir-pretty-debuginfo", "emit-bytecode", "mlir-use-nameloc-as-prefix", "pipeline")
    text = " ".join([*(p.name for p in invocation.passes), invocation.text("pass-pipeline") or ""])
    return any(invocation(flag) for flag in flags) or bool(_SHOWS_LOCATIONS.search(text))


def _with_file_name(module: Any, chunk: Chunk, context: Any) -> Any:
    """The same module with locations in its file: the bindings parse text only into an anonymous buffer."""
    text = module.operation.get_asm(enable_debug_info=True, use_local_scope=True, print_generic_op_form=True)
    quoted = '"' + chunk.source.name.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if chunk.line > 1:  # the implicit module stands where the chunk begins
        text = text.replace('"-":0:0', f'"-":{chunk.line}:{chunk.column}')
    return core()[0].Module.parse(re.sub(r'"-"(?=:\d+:\d+)', lambda m: quoted, text), context)


def _round_trips(module: Any, invocation: Invocation, context: Any) -> bool:
    """Print and parse again, as text and as bytecode: is it the same module?"""
    ir = core()[0]
    operation = module.operation
    reference = operation.get_asm(print_generic_op_form=True)
    forms = {
        "text": printing.text(operation, invocation),
        "bytecode": printing.output(operation, Invocation("-", {"emit-bytecode": True}, ())),
    }
    for kind, again in forms.items():
        parsed = ir.Module.parse(again, context)
        if invocation.on("no-implicit-module") and operation.name != MODULE:
            parsed = parsed.body.operations[0]
        if parsed.operation.get_asm(print_generic_op_form=True) != reference:
            operation.location.emit_error(f"roundTrip testing roundtripped module differs from reference ({kind})")
            return False
    return True


def _transform(
    chunk: Chunk,
    invocation: Invocation,
    context: Any,
    module: Any,
    tell: Callable[[int], None],
    timing: Report | None,
    tracing: Tracing | None,
    resources: Resources,
) -> tuple[bool, bytes]:
    operation = module.operation
    stored = reproducer_of(chunk.text()) if invocation.on("run-reproducer") and not chunk.source.is_bytecode else None
    todo = plans(invocation, operation.name, stored)
    payload: Any = module
    if not todo and invocation.on("dump-pass-pipeline"):
        todo = [Plan()]
    if any(element.step for plan in todo for element in plan.elements):
        context.load_all_available_dialects()  # Python passes make ops without declaring dialects they depend on
    tell(Phase.PASSES)
    for plan in todo:
        if payload is module:
            succeeded, payload = _run(plan, chunk, invocation, context, module, timing, tracing)
        else:
            succeeded, payload = True, _translate(only_translations(plan), payload)
        if not succeeded:
            if plan.stage:
                emit(f"<unknown>:0: note: this was stage '{plan.stage}'\n")
            return False, b""
    tell(Phase.PRINTING)
    if tracing:
        return True, b""
    started = time.perf_counter()
    if payload is module:
        out = printing.output(operation, invocation, resources)
    else:
        data = _shown(payload)
        out = printing.encode(data) if isinstance(data, str) else data
    if timing:
        timing.add("Output", time.perf_counter() - started)
    return True, out


def _shown(payload: Any) -> str | bytes:
    """What a translation has left: text or bytes, a record of either, or a module that it has made anew."""
    if isinstance(payload, (str, bytes)):
        return payload
    if hasattr(payload, "operation"):
        from mlirstack.ir.text import module_text

        return module_text(payload)
    shown: str | bytes = getattr(payload, "text", None) or payload.data
    return shown


def _run(
    plan: Plan,
    chunk: Chunk,
    invocation: Invocation,
    context: Any,
    module: Any,
    timing: Report | None,
    tracing: Tracing | None,
) -> tuple[bool, Any]:
    """Run one plan; returns success and the payload, the module itself unless a translation left MLIR."""
    caught: list[BaseException] = []
    manager, translations = build(plan, context, module, caught)
    if invocation.on("dump-pass-pipeline") and not tracing:
        emit(pretty(str(manager)))
    tree = None if tracing else Tree.of(invocation)
    instrument(manager, invocation, tracing, tree)
    recorder = None
    if not tracing and any(invocation(f"mlir-{f}") for f in ("generate-reproducer", "pass-pipeline-crash-reproducer")):
        from mlirstack.opt.reproducer import Recorder

        recorder = Recorder(chunk, invocation, module, str(manager))
    succeeded = True
    try:
        manager.run(module.operation)
    except core()[0].MLIRError:
        succeeded = False
    if tree:
        tree.finish()
    if timing:
        with timing.capture():
            del manager  # this is when the bindings print their report
    if caught:
        raise caught[0]
    if recorder and not succeeded:
        recorder.report_failure(plan)
    return succeeded, _translate(translations, module) if succeeded else module


def _translate(translations: tuple[Any, ...], payload: Any) -> Any:
    if not translations:
        return payload
    from mlirstack.errors import MlirstackError

    for step in translations:
        try:
            payload = step.translate(payload)
        except MlirstackError as error:
            hint = f"\nhint: {error.hint}" if error.hint else ""
            raise FlagError(f"<unknown>:0: error: pass '{step.name}': {error.message}{hint}") from None
        except Exception as error:
            raise FlagError(f"<unknown>:0: error: {raised(step.name, error)}") from error
    return payload
