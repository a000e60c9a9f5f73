"""docs/operators.md from the table of operations: for each, in which dtypes which route and target give eager's answer.

What is not right has a number, and below the table the numbers have their reasons.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent.parent / "docs" / "operators.md"

_SHORT = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "i8",
    "uint8": "u8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "complex64": "c64",
}
_COLUMNS = {
    "cpu auto": "`cpu`",
    "cpu tosa": "`cpu`, TOSA only",
    "iree-cpu auto": "`iree-cpu`",
    "iree-cpu tosa": "`iree-cpu`, TOSA only",
}
_HEAD = """# Operators

Written by `python benchmarks/operators.py --update` from `benchmarks/results/operators.json`: do not edit. Each operation of
`mlirstack fuzz` in each dtype that eager takes (of f32, f64, f16, bf16, i8, u8, i16, i32, i64, bool, complex64), on ranks 0
to 6, tensors of no and of one element, odd sizes, permuted, strided, expanded and channels-last operands and special values
(`benchmarks/operator_cases.py`), compared with eager and with eager in double precision. "all": every graph of every dtype
that was run is right. Numbers are those of the reasons below the table. TOSA has no tensors without elements: that route is
not asked for them. What eager does not take is not in the table, and neither is what was not run yet.

"""


def write_page(rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the page of ``rows`` (by name: "add float32 cpu auto")."""
    PAGE.write_text(page_text(rows))


def page_text(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown."""
    columns = [column for column in _COLUMNS if any(name.endswith(f" {column}") for name in rows)]
    notes: dict[str, int] = {}
    lines = [
        f"| operation | dtypes | {' | '.join(_COLUMNS[column] for column in columns)} |",
        f"| --- | --- |{' --- |' * len(columns)}",
    ]
    for op in dict.fromkeys(name.split()[0] for name in rows):
        of_op = {tuple(name.split(maxsplit=2)[1:]): row for name, row in rows.items() if name.split()[0] == op}
        dtypes = list(dict.fromkeys(dtype for dtype, _ in of_op))
        cells = [_cell({d: of_op[d, column] for d in dtypes if (d, column) in of_op}, notes) for column in columns]
        lines.append(f"| `{op}` | {_names(dtypes)} | {' | '.join(cells)} |")
    reasons = [f"{number}. {reason}" for reason, number in notes.items()]
    return _HEAD + "\n".join(lines) + "\n\n## Reasons\n\n" + "\n".join(reasons) + "\n"


def _cell(by_dtype: Mapping[str, Mapping[str, Any]], notes: dict[str, int]) -> str:
    """What is right, and the rest: dtypes with the same reasons together."""
    if not by_dtype:
        return ""
    rests: dict[tuple[int, ...], list[str]] = {}
    for dtype, row in by_dtype.items():
        reasons = [_note(reason, cases, row["graphs"]) for reason, cases in row.get("rest", {}).items()]
        numbers = sorted({notes.setdefault(reason, len(notes) + 1) for reason in reasons})
        rests.setdefault(tuple(numbers), []).append(dtype)
    right = rests.pop((), [])
    if not rests:
        return "all"
    rest = "; ".join(f"{_names(dtypes)} [{', '.join(map(str, numbers))}]" for numbers, dtypes in rests.items())
    return f"{_names(right)}; not: {rest}" if right else f"not: {rest}"


def _note(reason: str, cases: Sequence[str], graphs: int) -> str:
    """A reason without the operation and its dtype, and the cases that it is of."""
    status, _, text = reason.partition(": ")
    first = re.sub(r"^\S+\([^)]*\): ", "", text.partition("; ")[0])
    general = re.sub(r"^\w+ in '\w+': ", "", re.sub(r"(?<!\w)\d[\d.e+-]*", "N", first))
    return f"{status}: {general}" + ("" if len(cases) == graphs else f" ({', '.join(cases)})")


def _names(dtypes: Sequence[str]) -> str:
    return " ".join(_SHORT.get(dtype, dtype) for dtype in dtypes)
