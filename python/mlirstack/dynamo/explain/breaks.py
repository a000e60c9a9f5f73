"""Graph breaks, each once: what comes in are Dynamo's messages, what goes out are reason, hint and the user's own line.

Dynamo tells of a break in every frame that it passes through and in every resumed part of a loop; its message holds the
frames of the user and those of its own code.  The same reason at the same line of the user's program is one break.
"""

from __future__ import annotations

import json
import linecache
import re
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import torch

from mlirstack.dynamo.explain.trace import Trace

_FRAME = re.compile(r'^ *File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>.+)$')
_PLACE = re.compile(r"^Graph break in user code at (?P<file>.+):(?P<line>\d+)$", re.MULTILINE)
_ID = re.compile(r"/gb/gb(\d+)\.html")
_USER_STACK = ("User code traceback:\n", "from user code:\n")
_SKIPPED = ("Skipping the function", "Skipping frame", "Skipping the frame")
_NO_MORE = ("\nTraceback (most recent call last):", "\n*** While handling this graph break", "\nSet TORCHDYNAMO_VERBOSE")
_INTRODUCTIONS = ("Graph Break Reason:", "Encountered graph break when", "Failed to handle graph break gracefully.")
_OWN_FOLDER = str(Path(__file__).parent)
_TORCH = str(Path(torch.__file__).parent) + "/"  # of a build from source, it is in no site-packages


@dataclass(frozen=True)
class Frame:
    """A frame of the Python stack."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclass(frozen=True)
class GraphBreak:
    """One break: ``reason`` and ``id`` as torch names them, ``file``, ``line`` and ``source`` of the user's program.

    ``frames`` run from the outermost user frame to where Dynamo stopped, libraries included.  ``hits`` counts how often
    Dynamo met it.  ``skipped``: the whole function runs in eager, not the line alone.  ``fatal``: compiling raised.
    """

    reason: str
    id: str | None
    explanation: str
    hints: tuple[str, ...]
    file: str
    line: int
    source: str
    frames: tuple[Frame, ...] = ()
    hits: int = 1
    skipped: bool = False
    fatal: bool = False
    context: str = field(default="", compare=False)


def graph_breaks(trace: Trace, *, failed: bool = False) -> tuple[GraphBreak, ...]:
    """All breaks of a trace, each once, in the order in which they were met; ``failed``: compiling raised at the end."""
    found: dict[tuple[str, int, str], GraphBreak] = {}
    messages = [event.payload for event in trace.of("dynamo_graph_break_reason")]
    breaks = [parse_break(message) for message in messages]
    if failed:
        errors = [event.payload for event in trace.of("dynamo_error")]
        breaks += [replace(parse_break(_last_error(text)), fatal=True) for text in errors[-1:]]
    for one in breaks:
        key = (one.file, one.line, one.id or one.reason)
        before = found.get(key)
        if before is not None:
            one = replace(  # noqa: PLW2901
                before, hits=before.hits + 1, skipped=before.skipped or one.skipped, fatal=before.fatal or one.fatal
            )
        found[key] = one
    return tuple(found.values())


def parse_break(message: str) -> GraphBreak:
    """One message of Dynamo."""
    frames = _user_frames(message)
    place = _PLACE.search(message)
    user = user_frame(frames)
    if user is None and place is not None:
        user = Frame(place["file"], int(place["line"]), "")
    if user is None:
        user = Frame("", 0, "")
    head = message
    for mark in (*_USER_STACK, *_NO_MORE):
        head = head.partition(mark)[0]
    found_id = _ID.search(head)
    identifier = f"GB{found_id[1]}" if found_id else None
    reason, explanation, hints, context = _told(head)
    if identifier in registry() and (not explanation or not hints):
        entry = registry()[str(identifier)]
        explanation, hints = explanation or entry.explanation, hints or entry.hints
    return GraphBreak(
        reason=reason,
        id=identifier or id_of(reason),
        explanation=explanation,
        hints=hints,
        file=user.file,
        line=user.line,
        source=linecache.getline(user.file, user.line).strip(),
        frames=frames,
        skipped=any(text in message for text in _SKIPPED),
        context=context,
    )


@dataclass(frozen=True)
class RegistryEntry:
    """What torch's own list says of a kind of graph break."""

    kind: str
    explanation: str
    hints: tuple[str, ...]


@cache
def registry() -> dict[str, RegistryEntry]:
    """torch's list of graph breaks by id ("GB0059"); empty for a torch that comes without one."""
    path = Path(torch.__file__).parent / "_dynamo" / "graph_break_registry.json"
    if not path.is_file():
        return {}
    entries = json.loads(path.read_text())
    return {
        name: RegistryEntry(newest["Gb_type"], newest["Explanation"], tuple(newest["Hints"]))
        for name, (newest, *_) in entries.items()
    }


def id_of(reason: str) -> str | None:
    """The id of a kind of graph break; torch writes it into most messages, not into all."""
    return next((name for name, entry in registry().items() if entry.kind == reason), None)


def user_frame(frames: Iterable[Frame]) -> Frame | None:
    """The innermost frame of the user's own code; where there is none, of what stands outside torch."""
    frames = list(frames)
    own = [frame for frame in frames if not is_library(frame.file)]
    outside = [frame for frame in frames if not _is_torch(frame.file)]
    chosen = own or outside or frames
    return chosen[-1] if chosen else None


def is_library(file: str) -> bool:
    """Whether a file belongs to Python, to an installed package, or to torch, wherever that lies."""
    return "site-packages/" in file or "dist-packages/" in file or file.startswith((_stdlib(), "<")) or _is_torch(file)


def _is_torch(file: str) -> bool:
    return "-packages/torch/" in file or file.startswith(("<site-packages>/torch/", _TORCH))


@cache
def _stdlib() -> str:
    return sysconfig.get_path("stdlib")


def _user_frames(message: str) -> tuple[Frame, ...]:
    """The frames of the user's stack, without those of this package, which calls the user's function."""
    for mark in _USER_STACK:
        _, found, rest = message.partition(mark)
        if found:
            break
    else:
        return ()
    for end in _NO_MORE:
        rest = rest.partition(end)[0]
    matches = (_FRAME.match(line) for line in rest.splitlines())
    frames = [Frame(m["file"], int(m["line"]), m["name"]) for m in matches if m]
    own = [index for index, frame in enumerate(frames) if frame.file.startswith(_OWN_FOLDER)]
    return tuple(frames[own[-1] + 1 :] if own else frames)


def _last_error(text: str) -> str:
    """Of the traceback of an error, the message and the user's stack."""
    head, mark, stack = text.rpartition(_USER_STACK[1])
    body = re.split(r"^[\w.]+(?:Error|Unsupported|Exception)[\w.]*: ", head if mark else text, flags=re.MULTILINE)[-1]
    return body + mark + stack


def _told(head: str) -> tuple[str, str, tuple[str, ...], str]:
    """Reason, explanation, hints and context of a message without its stacks."""
    sections: dict[str, list[str]] = {}
    name = "reason"
    for line in head.splitlines():
        marked = re.match(r"^ {0,4}(Explanation|Hint|Developer debug context): ?(.*)$", line)
        if marked:
            name = marked[1]
            sections.setdefault(name, []).append(marked[2])
        elif " For more details about this graph break" in line or _PLACE.match(line):
            name = "" if "For more details" in line else name
        elif name == "reason":
            sections.setdefault(name, []).append(_without_introduction(line))
        elif name and line.strip():
            sections[name][-1] += " " + line.strip()
    reason = next((line for line in sections.get("reason", []) if line), "no reason given")
    explanation = " ".join(sections.get("Explanation", [])).strip()
    return reason, explanation, tuple(sections.get("Hint", ())), " ".join(sections.get("Developer debug context", []))


def _without_introduction(line: str) -> str:
    """ "Graph Break Reason: X" is "X"; sentences that stand before every reason are nothing."""
    text = line.removeprefix("Graph Break Reason:").strip()
    return "" if text.startswith(_INTRODUCTIONS[1:]) else text
