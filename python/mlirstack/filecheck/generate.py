"""CHECK lines for a test from what its RUN lines print, with SSA names, constants and aliases captured.

The directives of a function go right above the function of the same name in the test, all others to its end.  What is
written is a start: delete what the test is not about.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from mlirstack.errors import MissingDependencyError, StageError, UsageError
from mlirstack.filecheck.directives import RunLine, run_lines

_TIME_LIMIT_S = 120
_MARKER = re.compile(r"^// -----\s*$", re.MULTILINE)
_SYMBOL = re.compile(r"^\s*(?:[\w.]+\s+)?[\w.]*func\S*\s.*?(@[\w$.-]+)|^\s*(?:gpu\.module|memref\.global)\s.*?(@[\w$.-]+)")
_NAME = re.compile(r"(?<![\w\"])([%#!])([A-Za-z_$][\w$.-]*|\d+)(#\d+|:\d+)?(?![\w$.-]*[\"])")


@dataclass
class _Names:
    """The capture variables of one output: name as printed → variable."""

    variables: dict[str, str] = field(default_factory=dict)

    def capture(self, line: str) -> str:
        """``line`` with captured names, and with FileCheck's own brackets escaped."""
        parts: list[str] = []
        at = 0
        for match in _NAME.finditer(line):
            sigil, name, suffix = match[1], match[2], match[3] or ""
            if sigil != "%" and f"{sigil}{name}" not in self.variables and not line.startswith(f"{sigil}{name} ="):
                continue  # an attribute or a type of a dialect, #gpu.block and the like
            parts.append(_escape(line[at : match.start()]))
            parts.append(sigil + self._variable(sigil, name) + suffix)
            at = match.end()
        return "".join(parts) + _escape(line[at:])

    def forget_values(self) -> None:
        """A new function: its SSA names are others, even where they look the same."""
        self.variables = {name: variable for name, variable in self.variables.items() if not name.startswith("%")}

    def _variable(self, sigil: str, name: str) -> str:
        printed = f"{sigil}{name}"
        if printed in self.variables:
            return f"[[{self.variables[printed]}]]"
        base = re.sub(r"\W", "_", name).upper()
        if base[0].isdigit():
            base = f"V{base}"
        taken, variable = set(self.variables.values()), base
        count = 0
        while variable in taken:
            count += 1
            variable = f"{base}_{count}"
        self.variables[printed] = variable
        return f"[[{variable}:{'.*' if sigil == '%' else '.+'}]]"


def _escape(text: str) -> str:
    return text.replace("{{", "{{[{][{]}}").replace("[[", "{{\\[\\[}}").replace("]]", "{{\\]\\]}}")


def with_directives(path: Path) -> str:
    """The text of the test at ``path`` with its directives written anew.

    :class:`UsageError` where the file has no RUN line with FileCheck, :class:`StageError` where a command fails or where
    FileCheck does not accept the result.
    """
    text = path.read_text()
    runs = [run for run in run_lines(text) if run.prefixes]
    if not runs:
        raise UsageError(
            f"{path} has no RUN line with FileCheck",
            hint="begin the file with: // RUN: mlirstack-opt %s --canonicalize | FileCheck %s",
        )
    outputs: dict[str, str] = {}
    for run in runs:
        output = _output(run, path)
        for prefix in run.prefixes:
            if outputs.setdefault(prefix, output) != output:
                raise UsageError(
                    f"{path}:{run.line}: the RUN lines of prefix {prefix} print different things",
                    hint="give them prefixes of their own: FileCheck %s --check-prefix=OTHER",
                )
    result = _insert(_without_directives(text, set(outputs)), outputs)
    for run in runs:
        _confirm(run, path, outputs[run.prefixes[0]], result)
    return result


def _output(run: RunLine, path: Path) -> str:
    command = run.producer.replace("%s", shlex.quote(str(path)))
    command = re.sub(r"^not\s+", "", command)
    tools = Path(sys.executable).parent
    environment = {"PATH": f"{tools}:/usr/local/bin:/usr/bin:/bin"}
    done = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, timeout=_TIME_LIMIT_S, check=False, env=environment
    )
    if done.returncode and not run.producer.startswith("not "):
        raise StageError(f"the command failed:\n{done.stderr.strip()}", stage="checks", hint=f"it was: {command}")
    return done.stdout


def _without_directives(text: str, prefixes: set[str]) -> str:
    names = "|".join(re.escape(p) for p in sorted(prefixes, key=len, reverse=True))
    directive = re.compile(rf"^\s*//\s*(?:{names})(?:-(?:NEXT|SAME|NOT|DAG|LABEL|EMPTY|COUNT-\d+))?:")
    return "\n".join(line for line in text.split("\n") if not directive.match(line))


def _insert(text: str, outputs: dict[str, str]) -> str:
    parts = _MARKER.split(text)
    for prefix, output in outputs.items():
        for index, printed in enumerate(_MARKER.split(output)):
            part = min(index, len(parts) - 1)
            parts[part] = _place(parts[part], _blocks(printed, prefix))
    return "// -----".join(parts)


def _place(text: str, blocks: list[tuple[str, list[str]]]) -> str:
    """``text`` with each block above the function it speaks of; their order is that of the output, which FileCheck needs."""
    lines = text.split("\n")
    earliest = 0
    for symbol, directives in blocks:
        defined = re.compile(rf"^\s*[\w.]+\s.*{re.escape(symbol)}(?![\w$.-])") if symbol else None
        at = next((n for n in range(earliest, len(lines)) if defined and defined.match(lines[n])), None)
        if at is None:
            at = earliest or _end(lines)
        lines[at:at] = directives
        earliest = at + len(directives)
    return "\n".join(lines)


def _end(lines: list[str]) -> int:
    """Where the text ends, empty lines left out."""
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    return end


def _blocks(output: str, prefix: str) -> list[tuple[str, list[str]]]:
    """The output's directives, cut where a function begins: ``(its symbol, directives)``; aliases belong to the first."""
    names = _Names()
    blocks: list[tuple[str, list[str]]] = []
    before: list[str] = []
    following = False
    for line in output.split("\n"):
        stripped = line.strip()
        if not stripped or (stripped in ("module {", "}") and not line.startswith("  ")):
            following = False
            continue
        symbol = _SYMBOL.match(line)
        if symbol:
            name = symbol[1] or symbol[2]
            names.forget_values()
            head, found, rest = line.partition(name)
            blocks.append((name, [*before, f"// {prefix}-LABEL: {_escape(head.strip() + ' ' + name)}"]))
            before = []
            if found and rest.strip():
                blocks[-1][1].append(f"// {prefix}-SAME:  {names.capture(rest.strip())}")
            following = True
            continue
        kind = f"{prefix}-NEXT:" if following else f"{prefix}:"
        directive = f"// {kind:<{len(prefix) + 7}} {names.capture(line[2:] if line.startswith('  ') else line)}"
        (blocks[-1][1] if blocks else before).append(directive)
        following = bool(blocks)
    return blocks if blocks or not before else [("", before)]


def _confirm(run: RunLine, path: Path, output: str, checks: str) -> None:
    """Does FileCheck accept what was written?"""
    import tempfile

    tool = Path(sys.executable).parent / "FileCheck"
    if not tool.exists():
        raise MissingDependencyError("FileCheck is not installed", hint="pip install llvm-testing-tools")
    with tempfile.NamedTemporaryFile("w", suffix=path.suffix) as file:
        file.write(checks)
        file.flush()
        command = [str(tool), file.name, f"--check-prefixes={','.join(run.prefixes)}"]
        done = subprocess.run(command, input=output, capture_output=True, text=True, timeout=_TIME_LIMIT_S, check=False)
    if done.returncode:
        raise StageError(f"{path}: FileCheck does not accept the new directives:\n{done.stderr[:2000]}", stage="checks")
