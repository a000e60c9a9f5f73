"""Long messages of torch's tracers in one line.

They say first what was being done, the reason further down, and the user's line sometimes in the text alone.
"""

from __future__ import annotations

import re

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_RAISED = re.compile(r"got \w+\((['\"])(.*?)\1\)\s*$")  # what an operation raised for the shapes that it was given
_WHOLE = "This higher order operator doesn't work unless"  # says that something was not captured, and no more


def reason_of(text: str) -> str:
    """The reason that ``text`` gives: its explanation, where it has one, else its first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    explained = next((i for i, line in enumerate(lines) if line.startswith("Explanation:")), None)
    if explained is None:
        return lines[0] if lines else ""
    raised = _RAISED.search(lines[explained])
    if raised:
        return raised[2]
    headings = [line for line in lines[:explained] if not line.startswith((_WHOLE, "Higher Order Operator:"))]
    explanation = lines[explained].removeprefix("Explanation:").strip().split(" Found in <", 1)[0]
    return f"{headings[-1]}: {explanation}" if headings else explanation


def places_in(text: str) -> list[tuple[str, int]]:
    """Files and lines that ``text`` names, outermost first."""
    return [(file, int(line)) for file, line in _FRAME.findall(text)]
