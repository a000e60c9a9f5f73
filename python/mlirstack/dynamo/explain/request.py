"""What the command line asks its child process for; light, so that a mistake in the options is told at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlirstack.errors import UsageError


@dataclass(frozen=True)
class Request:
    """What to explain, and in which forms the report is wanted (``width``, ``colour``, ``sources``: of the terminal)."""

    model: str
    after: str | None = None
    backward: bool = False
    shapes: Sequence[str] = ()
    seed: int = 0
    dtype: str | None = None
    threads: int = 1
    triton: bool = False
    html: bool = False
    sources: bool = False
    width: int = 120
    colour: bool = False


def checked_shapes(text: str | None) -> tuple[str, ...]:
    """``"8x32 16x32,4"`` as the shapes of two calls; :class:`UsageError` for anything else."""
    texts = tuple((text or "").split())
    parse_shapes(texts)
    return texts


def parse_shapes(texts: Sequence[str]) -> list[dict[int, tuple[int, ...]]]:
    """For each call the shapes of its first arguments, by number; :class:`UsageError` for anything else."""
    try:
        return [
            {position: tuple(int(size) for size in part.split("x")) for position, part in enumerate(text.split(","))}
            for text in texts
        ]
    except ValueError:
        raise UsageError(
            f"--shapes '{' '.join(texts)}' is no list of shapes",
            hint="for example --shapes '8x32 16x32', or '8x32,4 9x32,4'",
        ) from None
