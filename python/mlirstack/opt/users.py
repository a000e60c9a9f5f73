"""``--mlir-print-value-users``: who uses each value, as comments.

The bindings' printer lacks the flag.  Here every op and block argument gets a location with a name of its own, which the
printer writes as the name of its values and at the end of its text; both are then replaced: by the names that MLIR gives
under this flag, where an op without results takes a number too, and by the comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from mlirstack.bindings import core
from mlirstack.opt.flags import FlagError, Invocation

_REFUSED = ("mlir-print-debuginfo", "mlir-pretty-debuginfo", "mlir-use-nameloc-as-prefix", "mlir-print-local-scope")
_TOKEN = re.compile(r"%mu(\d+)(?:_(\d+))?(?![\w$.-])")
_ALIAS = re.compile(r'^(#loc\d*) = loc\("mu(\d+)"\)\n', re.MULTILINE)
_LOCATION = re.compile(r' loc\((?:(#loc\d*)|"mu(\d+)")\)')


def with_users(operation: Any, invocation: Invocation) -> str:
    """The text of ``operation`` with its comments; its locations are lost.  :class:`FlagError` for flags it excludes."""
    from mlirstack.opt import printing

    for flag in _REFUSED:
        if invocation.on(flag):
            raise FlagError(f"error: --{flag} is not supported together with --mlir-print-value-users")
    names = _Names(operation, generic=invocation.on("mlir-print-op-generic"))
    names.mark()
    text = printing.text(operation, invocation, enable_debug_info=True, use_name_loc_as_prefix=True)
    aliases = {alias: int(index) for alias, index in _ALIAS.findall(text)}
    lines: list[str] = []
    commented: set[int] = set()
    for line in _ALIAS.sub("", text).split("\n"):
        lines.append(_line(line, aliases, names))
        if line.rstrip().endswith("{") or line.lstrip().startswith("^"):
            indent = len(line) - len(line.lstrip()) + 2
            for index in (int(match[1]) for match in _TOKEN.finditer(line)):
                comment = names.arguments.get(index)
                if comment and index not in commented:
                    commented.add(index)
                    lines.append(" " * indent + comment)
    return "\n".join(lines) + "\n"


def _line(line: str, aliases: dict[str, int], names: _Names) -> str:
    """A printed line with the final names, and the comment of the op that ends on it."""

    def location(match: re.Match[str]) -> str:
        index = aliases.get(match[1], -1) if match[1] else int(match[2])
        ends = match.end() == len(line)
        return names.comments.get(index, "") if ends else ""

    return _TOKEN.sub(lambda m: names.final[int(m[1])][int(m[2]) + 1 if m[2] else 0], _LOCATION.sub(location, line))


class _Names:
    """Numbers all ops and block arguments, and names their values as MLIR does under the flag."""

    def __init__(self, operation: Any, *, generic: bool) -> None:
        self._ir = core()[0]
        self._operation = operation
        self._generic = generic
        self._state = self._ir.AsmState(operation)
        self._values: dict[Any, str] = {}  # value → final name, with '#' of a result group
        self._ids: dict[Any, str] = {}  # op without results → its id
        self._ops: list[Any] = []
        self._arguments: list[Any] = []
        self.final: dict[int, list[str]] = {}  # mark → final names of the result groups
        self._number(operation)
        self.comments: dict[int, str] = {}
        self.arguments: dict[int, str] = {}

    def mark(self) -> None:
        """Write the marks into the locations, and the comments and names under each mark."""
        for index, op in enumerate(self._ops):
            self.final[index] = _groups([self._values[r] for r in op.results])
            self.comments[index] = self._comment(op)
        for index, argument in enumerate(self._arguments, len(self._ops)):
            name = self._values[argument]
            self.final[index] = [name]
            users = self._users(argument)
            self.arguments[index] = f"// {name} " + (f"is used by {', '.join(users)}" if users else "is unused")
        with self._operation.context:
            for index, op in enumerate(self._ops):
                op.location = self._ir.Location.name(f"mu{index}")
            for index, argument in enumerate(self._arguments, len(self._ops)):
                argument.set_location(self._ir.Location.name(f"mu{index}"))

    def _number(self, operation: Any) -> None:
        # A region counts on from where its parent's ended; in the generic form names are unique in the whole text, so that
        # it counts on from the region printed last.
        number = self._number_op(operation, 0)
        entry_arguments = 0
        pending = [(region, 0) for region in operation.regions]
        while pending:
            region, start = pending.pop()
            number = number if self._generic else start
            for position, block in enumerate(region.blocks):
                for argument in block.arguments:
                    self._arguments.append(argument)
                    old = argument.get_name(self._state)
                    if position == 0 and self._generic:
                        old = f"%arg{entry_arguments}"
                        entry_arguments += 1
                    numbered = position > 0 and re.fullmatch(r"%\d+", old)
                    self._values[argument] = f"%{number}" if numbered else old
                    number += bool(numbered)
                for op in block.operations:
                    number = self._number_op(op.operation, number)
            pending += [(r, number) for block in region.blocks for op in block.operations for r in op.operation.regions]

    def _number_op(self, op: Any, number: int) -> int:
        self._ops.append(op)
        if not op.results:
            self._ids[op] = f"%{number}"
            return number + 1
        olds = [result.get_name(self._state) for result in op.results]
        if self._generic:  # names that ops choose are those of their own syntax
            olds = ["%0"] if len(olds) == 1 else [f"%0#{i}" for i in range(len(olds))]
        numbered = re.fullmatch(r"%\d+(#\d+)?", olds[0])
        for result, old in zip(op.results, olds, strict=True):
            self._values[result] = re.sub(r"^%\d+(?=#|$)", f"%{number}", old) if numbered else old
        return number + bool(numbered)

    def _users(self, value: Any) -> list[str]:
        """The names of the results of each op that uses ``value``, or its id; each op once."""
        found: list[str] = []
        for op in _unique(use.owner.operation for use in value.uses):
            found += [self._values[r] for r in op.results] if op.results else [self._ids[op]]
        return found

    def _comment(self, op: Any) -> str:
        if not op.results:
            return f" // id: {self._ids[op]}" if op.operands else ""
        users = _unique(use.owner.operation for result in op.results for use in result.uses)
        if not users:
            return " // unused"
        single = len(op.results) == len(users) == 1 and len(users[0].results) <= 1
        listed = [", ".join(self._users(result)) or "unused" for result in op.results]
        brackets = "({})" if len(op.results) > 1 else "{}"
        return f" // {'user' if single else 'users'}: " + ", ".join(brackets.format(part) for part in listed)


def _unique(ops: Iterator[Any]) -> list[Any]:
    found: list[Any] = []
    for op in ops:
        if op not in found:
            found.append(op)
    return found


def _groups(names: list[str]) -> list[str]:
    """The base names of neighbouring results: ``%2#0, %2#1`` is one group."""
    found: list[str] = []
    for name in names:
        base, _, position = name.partition("#")
        if not position or position == "0":
            found.append(base)
    return found
