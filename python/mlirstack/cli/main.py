"""The ``mlirstack`` command.  Each command loads what it needs when it runs, so that ``--help`` is quick."""

from __future__ import annotations

import importlib
import signal
import sys
from typing import Any

try:
    import typer
    from typer.core import TyperGroup
except ModuleNotFoundError as missing:  # a machine that only loads bundles needs neither
    print(f"error: {missing.name} is not installed, and the commands need it\nhint: pip install typer", file=sys.stderr)
    sys.exit(3)

# command → module; the function, or the group of commands, has the name of the command
_COMMANDS = {
    "lower": "mlirstack.cli.lower",
    "compare": "mlirstack.cli.compare",
    "explain": "mlirstack.cli.explain",
    "bisect": "mlirstack.cli.bisect",
    "reproduce": "mlirstack.cli.reproduce",
    "reduce": "mlirstack.cli.reduce",
    "build": "mlirstack.cli.build",
    "verify": "mlirstack.cli.verify",
    "run": "mlirstack.cli.run",
    "bench": "mlirstack.cli.bench",
    "fuzz": "mlirstack.cli.fuzz",
    "tune": "mlirstack.cli.tune",
    "report": "mlirstack.cli.report",
    "show": "mlirstack.cli.show",
    "diff": "mlirstack.cli.diff",
    "pipelines": "mlirstack.cli.pipelines",
    "checks": "mlirstack.cli.checks",
    "doctor": "mlirstack.cli.doctor",
}
_SUMMARIES = {
    "lower": "Lower a model stage by stage; write one numbered file per stage.",
    "compare": "Compare targets with eager: error, compile time, run time.",
    "bisect": "Find the first stage, pass and op whose answer leaves eager's.",
    "reproduce": "Replay a failure from the directory that it left.",
    "reduce": "Shrink a module that fails, with the failure staying.",
    "explain": "Show what torch.compile did to a model, and what to do about it.",
    "build": "Build a bundle: one directory that runs on other machines.",
    "run": "Run a bundle on inputs from files, or on made-up ones.",
    "bench": "Time bundles next to eager and torch.compile.",
    "verify": "Check a bundle on this machine: files, versions, processor, golden answers.",
    "fuzz": "Compare random graphs with eager; make finds small.",
    "tune": "Time kernels in all ways worth trying; keep the fastest in a table.",
    "report": "Write a dump as one HTML file, every line linked to where it comes from.",
    "show": "List the stages of a dump; print one.",
    "diff": "Compare two stages of a dump, or two dumps.",
    "pipelines": "Print the stage tables, with the pass pipeline of each stage.",
    "checks": "Write the CHECK lines of a FileCheck test; lint such tests.",
    "doctor": "Check versions, tools and devices; which targets are usable.",
}


class _LazyCommands(TyperGroup):
    """Loads the module of a command when the command is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _COMMANDS:
            return None
        if ctx.invoked_subcommand is None and "--help" in sys.argv[1:2]:
            return typer.main.get_command(_summary_app(cmd_name))
        module = importlib.import_module(_COMMANDS[cmd_name])
        command = getattr(module, cmd_name)
        if isinstance(command, typer.Typer):
            return typer.main.get_command(command)
        application = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        application.command(cmd_name, epilog=getattr(module, "EXAMPLES", None))(command)
        return typer.main.get_command(application)


def _summary_app(name: str) -> typer.Typer:
    application = typer.Typer(add_completion=False)

    def command() -> None: ...

    application.command(name, help=_SUMMARIES[name])(command)
    return application


app = typer.Typer(
    cls=_LazyCommands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Torch models down the whole MLIR stack, one visible level at a time.",
)


@app.callback()
def _root() -> None:
    pass


def main() -> None:
    """Entry point."""
    # What a terminal's Ctrl-C ends tidily, so does the signal of whoever runs jobs: nothing half-written is left.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    app(prog_name="mlirstack")
