"""The flags of mlirstack-opt, with the spelling and the rules of LLVM's command-line library.

In goes ``sys.argv``, out comes an :class:`Invocation`.  One or two dashes, ``--flag=value`` or ``--flag value``; every other
flag that names a pass is a pass, kept in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, NoReturn

SPLIT_MARKER = "// -----"


class FlagError(Exception):
    """The command line is wrong; the message says what to write instead."""


class Flag(NamedTuple):
    """One flag: ``kind`` is bool, text, list, uint, int or one-of; ``default`` what it means where it is not given."""

    kind: str
    doc: str
    default: object = None
    choices: tuple[str, ...] = ()
    bare: object = None  # the value of the flag where "=value" may be left out


_BOOL = ("true", "TRUE", "True", "1"), ("false", "FALSE", "False", "0")


def _switch(doc: str, default: bool = False) -> Flag:
    return Flag("bool", doc, default, bare=True)


INPUT: dict[str, Flag] = {
    "o": Flag("text", "output file ('-': stdout)", "-"),
    "allow-unregistered-dialect": _switch("allow operations of dialects that nobody registered"),
    "no-implicit-module": _switch("take the single top-level operation as it is, without a module around it"),
    "split-input-file": Flag("text", "process the parts between the markers one by one", None, bare=SPLIT_MARKER),
    "output-split-marker": Flag("text", "marker between the outputs of the parts", SPLIT_MARKER),
    "verify-diagnostics": Flag(
        "one-of", "compare the diagnostics with the expected-* comments", None, ("all", "only-expected"), bare="all"
    ),
    "verify-each": _switch("run the verifier after each pass", True),
    "verify-roundtrip": _switch("print, parse and compare the input first"),
    "irdl-file": Flag("text", "define the dialects of this IRDL file first"),
    "mlir-disable-threading": _switch("one thread (always so here)", True),
}
PASSES: dict[str, Flag] = {
    "pass-pipeline": Flag("text", "'builtin.module(…)'"),
    "pipeline": Flag("text", "the stage table of a target (mlirstack pipelines lists them)"),
    "from": Flag("text", "with --pipeline: the stage that the input stands at"),
    "to": Flag("text", "with --pipeline: the last stage to run"),
    "route": Flag("one-of", "with --pipeline: through TOSA or straight to linalg", "tosa", ("tosa", "linalg")),
    "transform": Flag("text", "apply the transform-dialect schedule of this file"),
    "transform-entry-point": Flag("text", "the named sequence that --transform starts at", "__transform_main"),
    "dump-pass-pipeline": _switch("print the pipeline to stderr before it runs"),
    "run-reproducer": _switch("run the pipeline that the input's reproducer section holds"),
    "list-passes": _switch("print all passes and their options"),
    "show-dialects": _switch("print all registered dialects"),
    "version": _switch("print versions"),
    "help": _switch("print this help"),
    "help-hidden": _switch("the same as --help"),
}
PRINTING: dict[str, Flag] = {
    "emit-bytecode": _switch("write bytecode instead of text"),
    "emit-bytecode-version": Flag("int", "write this version of bytecode"),
    "mlir-print-op-generic": _switch("print the generic form"),
    "mlir-print-debuginfo": _switch("print locations"),
    "mlir-pretty-debuginfo": _switch("print locations for people (the result cannot be parsed)"),
    "mlir-print-local-scope": _switch("print without aliases"),
    "mlir-print-assume-verified": _switch("print without verifying first"),
    "mlir-print-skip-regions": _switch("print without regions"),
    "mlir-print-value-users": _switch("print the users of each value as a comment"),
    "mlir-use-nameloc-as-prefix": _switch("name values after their locations"),
    "mlir-elide-elementsattrs-if-larger": Flag("uint", "elide constants with more elements"),
    "mlir-elide-resource-strings-if-larger": Flag("uint", "elide resources with more characters"),
}
INSTRUMENTATION: dict[str, Flag] = {
    "mlir-print-ir-before": Flag("list", "print the IR before these passes"),
    "mlir-print-ir-after": Flag("list", "print the IR after these passes"),
    "mlir-print-ir-before-all": _switch("print the IR before every pass"),
    "mlir-print-ir-after-all": _switch("print the IR after every pass"),
    "mlir-print-ir-after-change": _switch("… only where the pass changed it"),
    "mlir-print-ir-after-failure": _switch("… only where the pass failed"),
    "mlir-print-ir-module-scope": _switch("always print the whole module"),
    "mlir-print-ir-tree-dir": Flag("text", "write the IR into a tree of files below this directory"),
    "mlir-timing": _switch("print how long each pass took"),
    "mlir-timing-display": Flag("one-of", "how to print it", "tree", ("list", "tree")),
    "mlir-output-format": Flag("one-of", "format of the timing report", "text", ("text", "json")),
    "mlir-pass-statistics": _switch("print the statistics of each pass"),
    "mlir-pass-statistics-display": Flag("one-of", "how to print them", "pipeline", ("list", "pipeline")),
    "mlir-pass-pipeline-crash-reproducer": Flag("text", "write a reproducer here when a pass fails or crashes"),
    "mlir-pass-pipeline-local-reproducer": _switch("… with the smallest pipeline, the pass that failed"),
    "mlir-generate-reproducer": Flag("text", "write a reproducer here, whatever happens"),
    "mlir-diagnostic-verbosity-level": Flag("one-of", "what to print", "remarks", ("errors", "warnings", "remarks")),
    "mlir-disable-diagnostic-notes": _switch("do not print notes"),
    "mlir-print-op-on-diagnostic": _switch("print the operation with each diagnostic", True),
}
GROUPS = {"input and output": INPUT, "passes": PASSES, "printing": PRINTING, "reports": INSTRUMENTATION}
FLAGS: dict[str, Flag] = INPUT | PASSES | PRINTING | INSTRUMENTATION

# What mlir-opt has and the bindings do not offer: refused by name.
_PLUGIN = "the bindings load no plugins; register a Python step instead"
_ACTIONS = "the bindings offer no action tracing"
_REMARKS = "the bindings offer no remark engine"
_NO_ASM_OPTION = "the bindings' printer has no such option"
REFUSED: dict[str, str] = {
    "load-dialect-plugin": _PLUGIN,
    "load-pass-plugin": _PLUGIN,
    "log-actions-to": _ACTIONS,
    "log-mlir-actions-filter": _ACTIONS,
    "profile-actions-to": _ACTIONS,
    "mlir-debug-counter": _ACTIONS,
    "mlir-print-debug-counter": _ACTIONS,
    "mlir-enable-debugger-hook": _ACTIONS,
    "remark-format": _REMARKS,
    "remark-policy": _REMARKS,
    "remarks-filter": _REMARKS,
    "remarks-filter-analyse": _REMARKS,
    "remarks-filter-failed": _REMARKS,
    "remarks-filter-missed": _REMARKS,
    "remarks-filter-passed": _REMARKS,
    "remarks-output-file": _REMARKS,
    "emit-bytecode-producer": "the bindings write a fixed producer",
    "elide-resource-data-from-bytecode": "the bindings write bytecode whole",
    "mlir-print-elementsattrs-with-hex-if-larger": _NO_ASM_OPTION,
    "mlir-print-unique-ssa-ids": _NO_ASM_OPTION,
    "mlir-print-stacktrace-on-diagnostic": "the bindings were built without it",
    "mlir-very-unsafe-disable-verifier-on-parsing": "the bindings always verify what they parse",
    "debug": "the bindings were built without debug output",
    "debug-only": "the bindings were built without debug output",
    "color": "diagnostics are printed without colours",
}


SCHEDULE = "--transform"  # stands for a pass where a schedule is given; its "options" are the file


class PassFlag(NamedTuple):
    """A pass given as a flag: its name and its options as written, ``"a=1 b=2"``; a schedule takes its place among them."""

    name: str
    options: str


class Invocation(NamedTuple):
    """A parsed command line."""

    input: str
    values: dict[str, object]  # only what was given
    passes: tuple[PassFlag, ...]

    def __call__(self, flag: str) -> object:
        """The value of ``flag``, or its default; a flag that only mlirstack-translate has is off here."""
        if flag in self.values:
            return self.values[flag]
        return FLAGS[flag].default if flag in FLAGS else None

    def text(self, flag: str) -> str | None:
        """The value of a text flag."""
        value = self(flag)
        return None if value is None else str(value)

    def on(self, flag: str) -> bool:
        """Is the switch on?"""
        return self(flag) is True

    def names(self, flag: str) -> tuple[str, ...]:
        """The value of a list flag."""
        value = self(flag)
        return value if isinstance(value, tuple) else ()

    def number(self, flag: str) -> int | None:
        """The value of a number flag."""
        value = self(flag)
        return value if isinstance(value, int) else None


def parse(
    arguments: list[str],
    tool: str = "mlirstack-opt",
    flags: dict[str, Flag] = FLAGS,
    refused: dict[str, str] = REFUSED,
    *,
    passes_are_flags: bool = True,
) -> Invocation:
    """Parse a command line without the program's name; :class:`FlagError` for wrong use."""
    values: dict[str, object] = {}
    passes: list[PassFlag] = []
    inputs: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            inputs += rest
            break
        if argument == "-" or not argument.startswith("-"):
            inputs.append(argument)
            continue
        name, separator, value = argument.lstrip("-").partition("=")
        given: str | None = value if separator else None
        name = {"h": "help", "p": "pass-pipeline"}.get(name, name)
        if name in flags:
            values[name] = _given(name, flags[name], given, rest, values.get(name), tool)
            if name == "transform":
                passes.append(PassFlag(SCHEDULE, str(values[name])))
        elif name in refused:
            if given in _BOOL[1]:
                continue  # switched off, which is what happens anyway
            raise FlagError(f"{tool}: --{name} is not supported: {refused[name]}")
        elif not passes_are_flags:
            _unknown(name, tool, [*flags])
        else:
            passes.append(PassFlag(_known_pass(name, tool), given or ""))
    if len(inputs) > 1:
        raise FlagError(
            f"{tool}: Too many positional arguments specified!\n"
            f"Can specify at most 1 positional arguments: See: {tool} --help"
        )
    return Invocation(inputs[0] if inputs else "-", values, tuple(passes))


def _given(name: str, flag: Flag, text: str | None, rest: Iterator[str], earlier: object, tool: str) -> object:
    """The value of a flag as given, out of the next argument where "=value" is missing; lists grow."""
    if text is None and flag.bare is not None:
        return flag.bare
    if text is None:
        text = next(rest, None)
        if text is None:
            raise FlagError(f"{tool}: for the {'--' if len(name) > 1 else '-'}{name} option: requires a value!")
    value = _value(name, flag, text, tool)
    return (*earlier, *value) if isinstance(earlier, tuple) and isinstance(value, tuple) else value


def _value(name: str, flag: Flag, text: str, tool: str) -> object:
    where = f"{tool}: for the --{name} option:"
    if flag.kind == "bool":
        if text not in _BOOL[0] + _BOOL[1]:
            raise FlagError(f"{where} '{text}' is invalid value for boolean argument! Try 0 or 1")
        return text in _BOOL[0]
    if flag.kind in ("uint", "int"):
        if not text.removeprefix("-" if flag.kind == "int" else "").isdecimal():
            raise FlagError(f"{where} '{text}' value invalid for {flag.kind} argument!")
        return int(text)
    if flag.kind == "one-of" and text not in flag.choices:
        raise FlagError(f"{where} Cannot find option named '{text}'!\nhint: one of: {', '.join(flag.choices)}")
    if flag.kind == "list":
        parts = tuple(part for part in text.split(",") if part)
        if name.startswith("mlir-print-ir-"):
            for part in parts:
                if part not in _pass_names():
                    raise FlagError(f"{where} Cannot find option named '{part}'!{_nearest(part)}")
        return parts
    if name == "split-input-file" and not text:
        return SPLIT_MARKER
    return text


def _pass_names() -> set[str]:
    from mlirstack.pipeline.table import native_passes
    from mlirstack.steps import STEPS

    return {*native_passes(), *STEPS}


def _known_pass(name: str, tool: str) -> str:
    if name in _pass_names():
        return name
    from mlirstack.pipeline.registry import probe

    if name and probe(name) is not None:  # a newer wheel than the table
        return name
    _unknown(name, tool, [*FLAGS, *_pass_names()])


def _unknown(name: str, tool: str, known: list[str]) -> NoReturn:
    raise FlagError(f"{tool}: Unknown command line argument '--{name}'.  Try: '{tool} --help'{_nearest(name, known)}")


def _nearest(name: str, candidates: list[str] | None = None) -> str:
    import difflib

    close = difflib.get_close_matches(name, candidates or sorted(_pass_names()), n=3, cutoff=0.5)
    return "\nDid you mean " + ", ".join(f"'{'--' if len(m) > 1 else '-'}{m}'" for m in close) + "?" if close else ""
