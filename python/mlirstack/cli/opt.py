"""``mlirstack-opt``: run passes over a module, mlir-opt for the pip-installed bindings.

Reads MLIR text or bytecode from a file or stdin, runs a pass pipeline in which native passes, Python passes and schedules
share one spelling, and prints the result.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mlirstack.errors import MlirstackError, UsageError

EPILOG = """examples:
  mlirstack-opt in.mlir --pass-pipeline='builtin.module(canonicalize,func.func(cse))'
  mlirstack-opt in.mlir --pipeline=cpu --from=linalg --to=fused -o out.mlir
  mlirstack-opt --list-passes
"""


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "mlirstack-opt", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("input", nargs="?", default="-", help="a .mlir or .mlirbc file; '-' or nothing: stdin")
    parser.add_argument("-o", dest="output", default="-", metavar="FILE", help="where the result goes (default: stdout)")
    parser.add_argument("--pass-pipeline", metavar="TEXT", help="'builtin.module(…)'")
    parser.add_argument("--pipeline", metavar="TARGET", help="the stage table of a target")
    parser.add_argument("--from", dest="start", metavar="STAGE", help="with --pipeline: the stage the input stands at")
    parser.add_argument("--to", metavar="STAGE", help="with --pipeline: the last stage to run")
    parser.add_argument("--route", default="tosa", help="with --pipeline: tosa or linalg")
    parser.add_argument("--mlir-print-op-generic", action="store_true", help="print the generic form")
    parser.add_argument("--mlir-print-debuginfo", action="store_true", help="print locations")
    parser.add_argument("--emit-bytecode", action="store_true", help="write bytecode instead of text")
    parser.add_argument("--dump-pass-pipeline", action="store_true", help="print the pipeline to stderr before it runs")
    parser.add_argument("--list-passes", action="store_true", help="print all passes and their options")
    parser.add_argument("--version", action="store_true", help="print versions")
    return parser


def main(argv: list[str] | None = None) -> None:
    """Entry point of ``mlirstack-opt``; exit status as mlir-opt: 0, or 1 where parsing or a pass failed."""
    arguments = _arguments().parse_args(argv)
    try:
        status = _run(arguments)
    except MlirstackError as error:
        print(f"error: {error}", file=sys.stderr)
        status = 1
    except BrokenPipeError:
        status = 0
    sys.exit(status)


def _run(arguments: argparse.Namespace) -> int:
    from mlirstack.steps import register_steps

    register_steps()
    if arguments.version:
        from mlirstack.versions import versions

        print("\n".join(f"{name} {version}" for name, version in versions().items()))
        return 0
    if arguments.list_passes:
        _list_passes()
        return 0

    from mlirstack.bindings import new_context
    from mlirstack.ir.text import parse_module, read_module
    from mlirstack.pipeline.runner import Runner

    pipeline = _pipeline(arguments)
    if arguments.dump_pass_pipeline:
        print("\n".join(stage.text() for stage in pipeline.stages), file=sys.stderr)
    context = new_context()
    if arguments.input == "-":
        module = parse_module(sys.stdin.buffer.read(), context, name="<stdin>")
    else:
        module = read_module(Path(arguments.input), context)
    _write(arguments, Runner().run(pipeline, module))
    return 0


def _pipeline(arguments: argparse.Namespace):  # type: ignore[no-untyped-def]
    from mlirstack.pipeline.parse import parse_pipeline
    from mlirstack.pipeline.stage import Pipeline, Stage

    if arguments.pipeline:
        from mlirstack.targets.registry import create_target

        if arguments.pass_pipeline:
            raise UsageError("--pass-pipeline and --pipeline exclude each other")
        table = create_target(arguments.pipeline).pipeline(arguments.route, "fx")
        return table.slice(first=arguments.start, last=arguments.to)
    steps = parse_pipeline(arguments.pass_pipeline) if arguments.pass_pipeline else ()
    return Pipeline("command line", (Stage("command line", "linalg", steps),) if steps else ())


def _write(arguments: argparse.Namespace, payload: object) -> None:
    from mlirstack.bindings import ir
    from mlirstack.ir.text import module_bytecode, module_text

    data: str | bytes
    if isinstance(payload, (str, bytes)):
        data = payload
    elif isinstance(payload, ir.Module) and arguments.emit_bytecode:
        data = module_bytecode(payload)
    else:
        data = module_text(
            payload, elide=False, locations=arguments.mlir_print_debuginfo, generic=arguments.mlir_print_op_generic
        )
    raw = data.encode() if isinstance(data, str) else data
    if arguments.output == "-":
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()
        return
    try:
        Path(arguments.output).write_bytes(raw)
    except OSError as error:
        raise UsageError(f"cannot write {arguments.output}: {error.strerror}") from error


def _list_passes() -> None:
    from mlirstack.pipeline.registry import native_passes, python_steps

    for name, entry in sorted(native_passes().items()):
        options = f" {{{' '.join(entry['options'])}}}" if entry["options"] else ""
        print(f"{name}{options}" + (f"  on {entry['anchor']}" if entry["anchor"] else ""))
    for name in sorted(python_steps()):
        print(f"{name}  (mlirstack)")


if __name__ == "__main__":
    main()
