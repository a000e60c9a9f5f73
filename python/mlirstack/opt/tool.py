"""``mlirstack-opt``: run passes over a module, mlir-opt for the pip-installed bindings."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from mlirstack.opt.entry import run_tool
from mlirstack.opt.flags import FlagError, Invocation, parse
from mlirstack.opt.source import Chunk, read_source, split

if TYPE_CHECKING:
    from mlirstack.opt.isolation import Progress

TOOL = "mlirstack-opt"


def main(argv: list[str] | None = None) -> None:
    """Entry point of ``mlirstack-opt``; exit status as mlir-opt: 0, or 1 where anything failed."""
    run_tool(_main, argv)


def _main(arguments: list[str]) -> int:
    invocation = parse(arguments)
    for flag in ("help", "help-hidden", "version", "list-passes", "show-dialects"):
        if invocation.on(flag):
            from mlirstack.opt import listing

            print(listing.LISTINGS[flag]())
            return 0
    if any(flag.startswith("mlir-print-ir-") for flag in invocation.values):
        from mlirstack.opt.manager import check_printing

        check_printing(invocation)
    source = read_source(invocation.input)
    chunks, near_misses = split(source, invocation.text("split-input-file"))
    if near_misses:
        from mlirstack.opt.diagnostics import Printer

        printer = Printer(source)
        for place in near_misses:
            printer.at(place, "warning", "near miss with file split marker")
    return _run(invocation, chunks)


def _run(invocation: Invocation, chunks: list[Chunk]) -> int:
    from mlirstack.opt.dumps import Filter, is_filtered
    from mlirstack.opt.isolation import Progress, run_isolated

    progress = Progress()
    filtering = Filter(invocation) if is_filtered(invocation) else None
    ended = run_isolated(lambda: _work(invocation, chunks, progress), filtering)
    if not ended.signal:
        return ended.status
    from mlirstack.opt.crash import report

    return report(invocation, chunks, progress, ended)


def _work(invocation: Invocation, chunks: list[Chunk], progress: Progress) -> int:
    """What the child does: every chunk, then the output."""
    from mlirstack.bindings import core
    from mlirstack.opt.diagnostics import emit, frame_messages
    from mlirstack.opt.dumps import is_filtered
    from mlirstack.opt.engine import run_chunk

    if is_filtered(invocation):
        frame_messages()
    core()  # loading it is nobody's time
    timing = None
    if invocation.on("mlir-timing"):
        from mlirstack.opt.timing import Report

        timing = Report()
    outputs: list[bytes] = []
    succeeded = True
    for index, chunk in enumerate(chunks):
        try:
            fine, out = run_chunk(chunk, invocation, lambda phase, at=index: progress.tell(at, phase), timing)  # type: ignore[misc]
        except Exception as error:
            emit(user_message(error))
            fine, out = False, b""
        succeeded &= fine
        outputs.append(out)
    try:
        write_output(str(invocation("o")), f"{invocation.text('output-split-marker')}\n".encode().join(outputs), succeeded)
    except FlagError as error:
        emit(f"{error}\n")
        return 1
    if timing:
        emit(timing.text(str(invocation("mlir-timing-display")), str(invocation("mlir-output-format"))))
    return 0 if succeeded else 1


def user_message(error: Exception) -> str:
    """What is printed for an error of the user's; any other is raised again."""
    if isinstance(error, FlagError):
        return f"{error}\n"
    from mlirstack.errors import MlirstackError

    if not isinstance(error, MlirstackError):
        raise error
    return f"error: {error}\n"


def write_output(path: str, data: bytes, succeeded: bool) -> None:
    """Write to stdout ('-'), or to a file if all ``succeeded``; :class:`FlagError` where that cannot be done."""
    if path == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    elif succeeded:
        try:
            with open(path, "wb") as file:  # noqa: PTH123 (may be /dev/null or a pipe)
                file.write(data)
        except OSError as error:
            raise FlagError(f"cannot open output file '{path}': {error.strerror}") from None


if __name__ == "__main__":
    main()
