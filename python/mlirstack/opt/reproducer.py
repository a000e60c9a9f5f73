"""Reproducers: a module with the pipeline that fails on it, in the resource section that ``--run-reproducer`` reads."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mlirstack.bindings import lazy_context
from mlirstack.opt.diagnostics import emit
from mlirstack.opt.dumps import Dump, header
from mlirstack.opt.elements import MODULE, Plan
from mlirstack.opt.flags import FlagError, Invocation
from mlirstack.opt.source import Chunk


def reproducer_text(module_text: str, pipeline: str, *, verify_each: bool = True) -> str:
    """The module's text with its pipeline, as mlir-opt writes it."""
    quoted = pipeline.replace("\\", "\\\\").replace('"', '\\"')
    return (
        f"{module_text.rstrip()}\n\n{{-#\n  external_resources: {{\n    mlir_reproducer: {{\n"
        f'      pipeline: "{quoted}",\n      disable_threading: true,\n'
        f"      verify_each: {'true' if verify_each else 'false'}\n    }}\n  }}\n#-}}\n"
    )


def write(path: str, text: str) -> None:
    """Write to a file, or to stdout for '-'; :class:`FlagError` where that cannot be done."""
    if path == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        Path(path).write_text(text, "utf-8", "surrogateescape")
    except OSError as error:
        raise FlagError(f"cannot write the reproducer '{path}': {error.strerror}") from None


class Recorder:
    """Keeps the module as it is before the pipeline runs, and writes the reproducers that are asked for."""

    def __init__(self, chunk: Chunk, invocation: Invocation, module: Any, pipeline: str) -> None:
        self._chunk = chunk
        self._invocation = invocation
        self._location = module.operation.location
        self._text = module.operation.get_asm()
        self._pipeline = pipeline
        self._verify = invocation.on("verify-each")
        always = invocation.text("mlir-generate-reproducer")
        if always is not None:
            write(always, reproducer_text(self._text, pipeline, verify_each=self._verify))

    def report_failure(self, plan: Plan) -> None:
        """Write the reproducer of a failure and say where it is."""
        path = self._invocation.text("mlir-pass-pipeline-crash-reproducer")
        if path is None:
            return
        local = self._invocation.on("mlir-pass-pipeline-local-reproducer")
        dump, body = last_dump(self._chunk, self._invocation, plan, module_scope=local)
        pipeline, text = self._pipeline, self._text
        if local and dump:
            element = dump.argument + dump.options
            pipeline = f"{MODULE}({dump.op}({element}))" if dump.op and dump.op != MODULE else f"{MODULE}({element})"
            text = body
        write(path, reproducer_text(text, pipeline, verify_each=self._verify))
        self._location.emit_error("Failures have been detected while processing an MLIR pass pipeline")
        if dump:
            where = f"'{dump.op or MODULE}' operation" + (f": {dump.symbol}" if dump.symbol else "")
            blamed = f"`{dump.name}` on {where}" if local else f"[`{dump.name}` on {where}]"
            emit(f"note: Pipeline failed while executing {blamed}: reproducer generated at `{path}`\n")


def last_dump(chunk: Chunk, invocation: Invocation, plan: Plan, *, module_scope: bool) -> tuple[Dump | None, str]:
    """Replay ``plan`` on the chunk: the header before its last pass, and the IR that stood there."""
    from mlirstack.opt.engine import parse
    from mlirstack.opt.manager import Tracing, build, instrument
    from mlirstack.opt.timing import stderr_to_file

    context = lazy_context()
    context.allow_unregistered_dialects = invocation.on("allow-unregistered-dialect")
    handler = context.attach_diagnostic_handler(lambda diagnostic: True)
    module = parse(chunk, invocation, context)
    manager, _ = build(plan, context, module, [])
    instrument(manager, invocation, Tracing(module_scope))
    with stderr_to_file() as written:
        try:
            manager.run(module.operation)
        except Exception as error:
            if type(error).__name__ != "MLIRError":  # which is expected: the failure is replayed
                raise
    handler.detach()
    return split_last(written[0])


def split_last(written: bytes) -> tuple[Dump | None, str]:
    """The last header in what was written, and the text below it."""
    found: Dump | None = None
    body: list[bytes] = []
    for line in written.splitlines(keepends=True):
        dump = header(line)
        if dump:
            found, body = dump, []
        else:
            body.append(line)
    return found, b"".join(body).decode("utf-8", "surrogateescape")
