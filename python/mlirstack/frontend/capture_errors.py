"""What torch.export says when it cannot capture a model, in one short error: the line, the reason, the way out."""

from __future__ import annotations

import re
import traceback

import torch
from torch.export import ExportedProgram

from mlirstack.errors import SourceLine, UnsupportedError, UnsupportedOp
from mlirstack.frontend.explanations import places_in, reason_of
from mlirstack.frontend.graph import is_mapped

_GUARD = re.compile(
    r"Not all values of (?P<dim>.+?) in the specified range (?P<range>.+?) satisfy the generated guard (?P<guard>.+)"
)
_CONSTANT = re.compile(
    r"You marked (?P<dim>.+?) as dynamic but your code specialized it to be a constant \((?P<value>\d+)\)"
)


def capture_error(what: str, error: Exception) -> UnsupportedError:
    """``error``, raised by torch.export, as an error of ours that begins with ``what``."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and lines[0].startswith("Constraints violated"):
        return _violated(lines[1:])
    reason = f"{type(error).__name__}: {reason_of(str(error))}" if lines else type(error).__name__
    frames = [(f.filename, f.lineno or 0) for f in traceback.extract_tb(error.__traceback__)]
    own = [[place for place in places if not _is_machinery(place[0])] for places in (frames, places_in(str(error)))]
    found = own[0] or own[1]
    source = SourceLine(*found[-1]) if found else None
    return UnsupportedError(
        what,
        (UnsupportedOp("torch.export", reason, source),),
        hint="the model must be one graph: no branches on tensor values, no calls out of torch; "
        "torch.export's documentation explains the message",
    )


def refuse_derivatives(exported: ExportedProgram) -> None:
    """Raise :class:`UnsupportedError` if the model takes a derivative by ``torch.func``.

    torch.export keeps no graph of it: what was computed on the way is left as tensors without numbers.
    """
    constants = [value for value in exported.constants.values() if isinstance(value, torch.Tensor)]
    if any(is_mapped(x) or not torch._C._has_storage(x) for x in constants):
        raise UnsupportedError(
            "the model takes a derivative by torch.func (grad, vjp, jacrev, …), which torch.export does not capture",
            hint="torch.compile(model, backend='mlirstack') captures it",
        )


def _is_machinery(filename: str) -> bool:
    return "/torch/" in filename or "/mlirstack/" in filename or filename.startswith("<")


def _violated(lines: list[str]) -> UnsupportedError:
    """The model holds for fewer sizes than were asked for: which, and what may be asked for instead."""
    found = [_readable(line[2:]) for line in lines if line.startswith("- ")]
    fixes: list[str] = []
    if "Suggested fixes:" in lines:
        for line in lines[lines.index("Suggested fixes:") + 1 :]:
            if not re.match(r"\w+ = ", line):
                break
            fixes.append(_readable(line))
    listing = "".join(f"\n  {line}" for line in dict.fromkeys(found))
    hint = "; ".join(fixes) if fixes else "a narrower range, or no dynamic dimension there"
    return UnsupportedError(
        f"the model does not hold for all sizes that its dynamic dimensions allow{listing}", hint=f"it can have: {hint}"
    )


def _readable(text: str) -> str:
    text = re.sub(r"L\['(\w+)'\]", r"\1", text).replace(".size()[", ".shape[").rstrip(".")
    if guard := _GUARD.match(text):
        return f"{guard['dim']} with {guard['range']}: holds only where {guard['guard']}"
    if constant := _CONSTANT.match(text):
        return f"{constant['dim']}: holds only for {constant['value']}"
    return text
