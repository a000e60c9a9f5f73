"""Recompilations: which guard failed, and what it saw change.  Guards come in as torch prints them, in several dialects.

A guard on a tensor says both values; a guard on a Python value says only what it expected, as the new value is nowhere in
the trace.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from mlirstack.dynamo.explain.breaks import is_library
from mlirstack.dynamo.explain.trace import Event, Trace

_CACHE_ENTRY = re.compile(r"^(\d+/\d+): ")
_COMMENT = re.compile(r"\s+# (?P<code>.*?)\s+# (?P<file>\S[^\n]*?):(?P<line>\d+) in (?P<name>\S+)")
_USER_FRAME = re.compile(r'File "([^"]+)", line (\d+), in ')


@dataclass(frozen=True)
class Recompile:
    """One recompilation of a function.

    ``reason`` is the guard that failed, as torch says it; ``kind`` what changed: dimension, rank, stride, dtype, device,
    requires_grad, dispatch, mode, global, attribute, argument, type, object, limit or other; ``what`` its name, ``before``
    and ``after`` its values.  ``other_reasons`` are the guards that failed for older compilations of the same function.
    """

    reason: str
    kind: str
    what: str
    before: str
    after: str
    file: str
    line: int
    function: str
    compile_id: str
    other_reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Change:
    kind: str
    what: str
    before: str = ""
    after: str = ""


def recompilations(trace: Trace) -> tuple[Recompile, ...]:
    """All recompilations of a trace, in order."""
    places = {event.compile_id: event for event in trace.of("compilation_metrics")}
    # The function is the same in every compilation of a frame: where the last one is missing, another tells.
    frames = {(event.compile_id or "").partition("/")[0]: event for event in trace.of("compilation_metrics")}
    found = []
    for event in trace.of("recompile_reasons"):
        place = places.get(event.compile_id) or frames.get((event.compile_id or "").partition("/")[0])
        found.append(_recompile(event, place, trace.missing()))
    return tuple(found)


def _recompile(event: Event, place: Event | None, missing: str) -> Recompile:
    reasons = _texts(event.payload) or [missing]
    first = reasons[0]
    guard, file, line = first, "", 0
    comment = _COMMENT.search(first)
    if comment:
        guard, file, line = first[: comment.start()], comment["file"], int(comment["line"])
    guard = guard.partition("\nUser stack trace:")[0].strip()
    stack = [frame for frame in _USER_FRAME.findall(first) if not is_library(frame[0])]
    if stack:  # the comment may shorten the path, the stack does not
        file, line = stack[-1][0], int(stack[-1][1])
    fields = place.fields if place else {}
    if not file:
        file, line = str(fields.get("co_filename") or missing), int(fields.get("co_firstlineno") or 0)
    change = explain_guard(guard, missing)
    return Recompile(
        guard,
        change.kind,
        change.what,
        change.before,
        change.after,
        file,
        line,
        str(fields.get("co_name") or missing),
        event.compile_id or missing,
        tuple(reason.partition("\n")[0].strip() for reason in reasons[1:]),
    )


def _texts(payload: str) -> list[str]:
    """The guards of a payload: plain text, or JSON (a text, or a list of texts); without the number of the cache entry."""
    try:
        data = json.loads(payload)
    except ValueError:
        data = payload
    found = data if isinstance(data, list) else [data]
    return [_CACHE_ENTRY.sub("", str(text)).strip() for text in found if str(text).strip()]


# ------------------------------------------------------------------------------------------------------------- the guards


def _tensor(kind: str) -> Callable[[re.Match[str]], _Change]:
    return lambda m: _Change(kind, m["name"], m["before"], m["after"])


def _value(m: re.Match[str]) -> _Change:
    kind, name = _named(m["name"])
    return _Change(kind, name, m["before"].strip())


_SAW = r"expected (?P<before>.+?),? (?:actual|but got) (?P<after>[^\s(]+)"
_GUARDS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], _Change]], ...] = tuple(
    (re.compile(pattern, re.DOTALL), read)
    for pattern, read in (
        (
            rf"tensor '(?P<name>.+?)' size mismatch at index (?P<axis>\d+)\. {_SAW}",
            lambda m: _Change("dimension", f"{_plain(m['name'])}, dimension {m['axis']}", m["before"], m["after"]),
        ),
        (
            rf"tensor '(?P<name>.+?)' stride mismatch at index (?P<axis>\d+)\. {_SAW}",
            lambda m: _Change("stride", f"{_plain(m['name'])}, stride {m['axis']}", m["before"], m["after"]),
        ),
        (rf"tensor '(?P<name>.+?)' rank mismatch\. {_SAW}", _tensor("rank")),
        (rf"tensor '(?P<name>.+?)' dtype mismatch\. {_SAW}", _tensor("dtype")),
        (rf"tensor '(?P<name>.+?)' (?:Tensor )?device(?: index)? mismatch\. {_SAW}", _tensor("device")),
        (
            r"tensor '(?P<name>.+?)' requires_grad mismatch\. expected requires_grad=(?P<before>\w+)",
            lambda m: _Change("requires_grad", _plain(m["name"]), m["before"], str(m["before"] in ("0", "False"))),
        ),
        (
            r"tensor '(?P<name>.+?)' dispatch key set mismatch\. expected (?P<before>.+), actual (?P<after>.+)",
            _tensor("dispatch"),
        ),
        (r"GLOBAL_STATE changed: (?P<name>[\w, ]+)", lambda m: _Change("mode", m["name"].strip())),
        (
            r"^(?:torch\.)?(?:is_|are_)\w+(?:\(\))? (?:==|is) (?P<before>\w+)",
            lambda m: _Change("mode", m[0].split()[0], m["before"]),
        ),
        (r"recompile limit|cache_size_limit", lambda m: _Change("limit", m[0])),
        (
            r"^(?:\d+ <= |Eq\(|Ne\()?(?P<name>.+?)\.size\(\)\[(?P<axis>\d+)\]",
            lambda m: _Change("dimension", f"{_plain(m['name'])}, dimension {m['axis']}", m.string.strip()),
        ),
        (r"^___check_type_id\((?P<name>[^,]+),", lambda m: _Change("type", _plain(m["name"]))),
        (r"^type\((?P<name>.+?)\) (?:==|is) ", lambda m: _Change("type", _plain(m["name"]))),
        (r"^___check_obj_id\((?P<name>[^,]+),", lambda m: _Change("object", _plain(m["name"]))),
        (r"^(?:str\()?(?P<name>[^=]+?)\)? == (?P<before>.+)$", _value),
        (r"^not (?P<name>[\w.\[\]'\"]+)$", lambda m: _Change(*_named(m["name"]), "False", "True")),
        (r"^(?P<name>[\w.\[\]'\"]+)$", lambda m: _Change(*_named(m["name"]), "True", "False")),
    )
)


def explain_guard(guard: str, missing: str) -> _Change:
    """What a failed guard says has changed; ``missing`` stands for the values that it does not give."""
    for pattern, read in _GUARDS:
        found = pattern.search(guard)
        if found:
            change = read(found)
            return _Change(change.kind, _plain(change.what), change.before or missing, change.after or missing)
    return _Change("other", guard.partition("\n")[0] or missing, missing, missing)


def _named(source: str) -> tuple[str, str]:
    """Kind and name of what a guard's source expression stands for: ``G['SCALE']`` is the global SCALE."""
    found = re.fullmatch(r"G\['([^']+)'\]", source.strip())
    if found:
        return "global", found[1]
    name = _plain(source.strip())
    return ("attribute" if "." in name else "argument"), name


def _plain(source: str) -> str:
    """``L['self'].power`` and ``self.power`` are both "self.power"."""
    return re.sub(r"\b[LG]\['([^']+)'\]", r"\1", source)
