"""A native crash: which pass it was, a reproducer, and a report instead of a dead process."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from mlirstack.opt.diagnostics import emit
from mlirstack.opt.dumps import Dump
from mlirstack.opt.flags import Invocation
from mlirstack.opt.isolation import Ended, Progress, run_isolated
from mlirstack.opt.source import Chunk


def report(invocation: Invocation, chunks: list[Chunk], progress: Progress, ended: Ended) -> int:
    """Print what crashed where and write the reproducer; returns the exit status."""
    from mlirstack.opt.engine import Phase

    index, phase = progress.read()
    chunk = chunks[index]
    where = f"{chunk.source.name}:{chunk.line}" if len(chunks) > 1 else chunk.source.name
    doing = {Phase.PARSING: "the parser", Phase.PRINTING: "the printer"}.get(phase, "")
    if phase == Phase.PASSES:
        dump = _guilty_pass(invocation, chunk)
        doing = f"pass '{dump.argument}'" if dump else "the pass pipeline"
    emit(f"{where}: error: {doing or 'the bindings'} crashed with {ended.signal_name}\n")
    if phase == Phase.PASSES:
        path = invocation.text("mlir-pass-pipeline-crash-reproducer") or _path()
        if _write(path, invocation, chunk):
            emit(f"note: reproducer generated at `{path}`\nhint: mlirstack-opt --run-reproducer {path}\n")
    return 1


def _path() -> str:
    descriptor, path = tempfile.mkstemp(".mlir", "mlirstack-crash-")
    os.close(descriptor)
    return path


def _guilty_pass(invocation: Invocation, chunk: Chunk) -> Dump | None:
    """Run the chunk again, printing before each pass: the last header names the pass."""
    from mlirstack.opt.engine import run_chunk
    from mlirstack.opt.manager import Tracing
    from mlirstack.opt.reproducer import split_last

    with tempfile.TemporaryFile() as file:

        def work() -> int:
            os.dup2(file.fileno(), 2)
            return 0 if run_chunk(chunk, invocation, lambda phase: None, tracing=Tracing(False))[0] else 1

        run_isolated(work)
        file.seek(0)
        return split_last(file.read())[0]


def _write(path: str, invocation: Invocation, chunk: Chunk) -> bool:
    """Write the reproducer: the chunk as it was given, with the entire pipeline."""
    from mlirstack.opt.elements import plans, reproducer_of
    from mlirstack.opt.reproducer import reproducer_text, write

    if chunk.source.is_bytecode:
        emit("note: the input is bytecode: run the same command again to reproduce\n")
        return False
    stored = reproducer_of(chunk.text()) if invocation.on("run-reproducer") else None
    texts = [plan.text() for plan in plans(invocation, reproducer=stored)]
    elements = ",".join(text.partition("(")[2][:-1] for text in texts)
    pipeline = texts[0] if len(texts) == 1 else f"builtin.module({elements})"
    text = chunk.text()
    if stored is not None:  # it has the section already
        Path(path).write_text(text, "utf-8", "surrogateescape")
    else:
        write(path, reproducer_text(text, pipeline, verify_each=invocation.on("verify-each")))
    return True
