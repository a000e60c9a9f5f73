"""Answers that need no input: help, versions, the passes and their options, the dialects."""

from __future__ import annotations

import re
from collections.abc import Callable

from mlirstack.opt.flags import GROUPS, Flag

_EXAMPLES = """examples:
  mlirstack-opt in.mlir --canonicalize --cse --convert-scf-to-cf
  mlirstack-opt in.mlir --tosa-to-arith='include-apply-rescale=true'
  mlirstack-opt in.mlir --pass-pipeline='builtin.module(canonicalize,func.func(cse))'
  mlirstack-opt in.mlir --pipeline=cpu --from=linalg --to=vectorized
  mlirstack-opt in.mlir --transform schedule.mlir
  mlirstack-opt tests.mlir --split-input-file --verify-diagnostics"""


def flag_lines(flags: dict[str, Flag]) -> list[str]:
    """One flag a line."""
    return [f"  {_spelling(name, flag):<52} {flag.doc}" for name, flag in flags.items()]


def help_text() -> str:
    """Usage and all flags; passes are listed by --list-passes."""
    lines = [
        "OVERVIEW: MLIR modular optimizer driver for the pip-installed bindings",
        "Runs passes over MLIR text or bytecode and prints the result.",
        "",
        "USAGE: mlirstack-opt [FILE] [flags] [passes]",
        "",
        "FILE may be '-' or left out: stdin.  Every pass of --list-passes is a flag: --PASS or --PASS='option=value …'.",
    ]
    for title, flags in GROUPS.items():
        lines += ["", f"{title}:", *flag_lines(flags)]
    return "\n".join([*lines, "", _EXAMPLES])


def _spelling(name: str, flag: Flag) -> str:
    dashes = "-" if len(name) == 1 else "--"
    if flag.kind == "bool":
        return dashes + name
    value = {"one-of": "|".join(flag.choices), "uint": "N", "int": "N", "list": "A,B,…"}.get(flag.kind, "TEXT")
    if flag.kind == "text" and name in ("o", "transform", "irdl-file", "mlir-generate-reproducer"):
        value = "FILE"
    return f"{dashes}{name}[={value}]" if flag.bare is not None else f"{dashes}{name}={value}"


def version_text() -> str:
    """Versions of the tool and of what its results depend on."""
    from mlirstack.versions import versions

    return "\n".join(f"{name} {version}" for name, version in versions().items())


def passes_text() -> str:
    """One pass a line: how it is written as a flag, its options, the operation it runs on."""
    from mlirstack.pipeline.table import native_passes
    from mlirstack.steps import STEPS

    lines = ["Passes of the bindings:"]
    for name, entry in sorted(native_passes().items()):
        options = "='" + " ".join(f"{o}=…" for o in entry["options"]) + "'" if entry["options"] else ""
        lines.append(f"  --{name}{options}" + (f"  (on {entry['anchor']})" if entry["anchor"] else ""))
    lines.append("Passes, schedules and translations of mlirstack:")
    lines += [f"  --{name}" for name in sorted(STEPS)]
    return "\n".join(lines)


def dialects_text() -> str:
    """The names of all dialects, as mlir-opt prints them."""
    from mlirstack.bindings import UNREGISTERED_DIALECTS, core, lazy_context

    # The bindings have no list, but the parser names all dialects where it does not know one.
    ir = core()[0]
    context = lazy_context()
    context.emit_error_diagnostics = False
    message = ""
    try:
        ir.Module.parse("unknown_dialect.op", context)
    except ir.MLIRError as error:
        message = str(error)
    found = re.search(r"Available dialects: ([\w, ]+?) ?;", message)
    names = found[1].split(", ") if found else []
    return "Available Dialects: " + ",".join(sorted({*names, *UNREGISTERED_DIALECTS}))


LISTINGS: dict[str, Callable[[], str]] = {
    "help": help_text,
    "help-hidden": help_text,
    "version": version_text,
    "list-passes": passes_text,
    "show-dialects": dialects_text,
}
