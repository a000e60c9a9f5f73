"""The ``--dynamic`` option: ``x:0=1..64`` marks dimension 0 of input ``x`` as 1 to 64, ``x:0=1..`` without upper bound."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mlirstack.errors import UsageError

DynamicRanges = dict[str, dict[int, tuple[int, int | None]]]  # input -> axis -> range

_PLACE = re.compile(r"([A-Za-z_]\w*):(\d+)")
_RANGE = re.compile(r"(\d+)\.\.(\d*)")


def parse_dynamic(options: Mapping[str, str]) -> DynamicRanges:
    """``{"x:0": "1..64"}`` to ``{"x": {0: (1, 64)}}``; raises :class:`UsageError` for anything else."""
    found: DynamicRanges = {}
    for place, text in options.items():
        at, bounds = _PLACE.fullmatch(place.strip()), _RANGE.fullmatch(text.strip())
        if at is None or bounds is None:
            raise UsageError(
                f"--dynamic '{place}={text}' is not of the form NAME:DIM=LOW..HIGH",
                hint="for example --dynamic 'x:0=1..64', or 'x:0=1..' without an upper bound",
            )
        low, high = int(bounds[1]), int(bounds[2]) if bounds[2] else None
        if high is not None and high <= low:
            raise UsageError(f"--dynamic '{place}={text}': the range is empty or holds one size only")
        found.setdefault(at[1], {})[int(at[2])] = (low, high)
    return found
