"""KernelBench's problems at sizes for a CPU: the module-level numbers of a problem file are made smaller before it runs.

The problems are written for large GPUs.  What is rewritten is the syntax tree of a file of the user's checkout, in memory;
powers of two shrink monotonously, so that what divided still divides, and odd factors stay odd, so that irregular sizes stay
irregular.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_BATCH = 2
_KEPT = 4  # exponents of two up to this one stay; above it, three share a step
_STEP = 3
_ODD = 31  # odd factors up to this one stay

Changes = Mapping[str, int | str]

_IMAGE: Changes = {"224": "64", "batch_size": 1}
_TINY_IMAGE: Changes = {"224": "16"}
_LITTLE_IMAGE: Changes = {"224": "32"}
_SMALL_IMAGE: Changes = {"height": 64, "width": 64, "batch_size": 1}
_VGG: Changes = {"224": "32", "512 * 7 * 7": "512 * 1 * 1", "4096": "256", "batch_size": 1}
_SWIN: Changes = {"224": "224", "batch_size": 1, "96": "24", "[2, 2, 6, 2]": "[1, 1, 2, 1]"}
_STEPS: Changes = {"sequence_length": 8, "seq_len": 8}  # recurrent layers are unrolled by the export
_NORM: Changes = {"out_channels": 32, "(16, 32, 32)": "(4, 8, 16)"}  # normalizes over the width, as if it were channels

# Where the general rule breaks what a problem expects of its sizes, or leaves too much work.  A string replaces an
# expression anywhere in the file, a number is the value of a module-level name; neither is made smaller.
_CHANGES: dict[tuple[int, int], Changes] = {
    (1, 70): {"depth": 12, "height": 12, "width": 12},
    (1, 72): {"depth": 6, "height": 8, "width": 12},
    (1, 73): {"depth": 8, "height": 8, "width": 16},
    (1, 100): {"batch_size": 128},
    (2, 3): _NORM,
    (2, 34): _NORM,
    (2, 77): {"(16, 32, 32)": "(8, 12, 12)"},
    (2, 78): {"(32, 32, 32)": "(8, 8, 8)"},
    (2, 100): {"(24, 48, 48)": "(8, 12, 12)"},
    (3, 4): {"32": "32"},
    (3, 5): {"224": "96", "256 * 6 * 6": "256 * 2 * 2", "4096": "256", "batch_size": 1},
    **dict.fromkeys([(3, n) for n in (6, 14, 21, 25)], _TINY_IMAGE),
    **dict.fromkeys([(3, 8), (3, 27)], _LITTLE_IMAGE),
    **dict.fromkeys([(3, n) for n in (9, 10, 15, 16, 20, 22, 24, 26)], _IMAGE),
    **dict.fromkeys([(3, 7), (3, 18)], _SMALL_IMAGE),
    (3, 19): {**_SMALL_IMAGE, "nn.AvgPool2d(7)": "nn.AvgPool2d(2)"},
    **dict.fromkeys([(3, 11), (3, 12)], _VGG),
    (3, 23): {"240": "64", "batch_size": 1},
    (3, 28): {"224": "64"},
    **dict.fromkeys([(3, 29), (3, 30)], _SWIN),
    (3, 32): {"32": "32"},
    (3, 34): {"sequence_length": 8},
    **dict.fromkeys([(3, n) for n in range(35, 43)], _STEPS),
}


def problem(path: Path) -> dict[str, Any]:
    """The names that a problem file defines (``Model``, ``get_inputs``, ``get_init_inputs``), at small sizes."""
    level, number = int(path.parent.name.removeprefix("level")), int(path.name.partition("_")[0])
    tree = smaller(path.read_text(), _CHANGES.get((level, number), {}))
    space: dict[str, Any] = {"__name__": "kernelbench_problem", "__file__": str(path)}
    exec(compile(tree, str(path), "exec"), space)
    return space


def smaller(source: str, changes: Changes) -> ast.Module:
    """The syntax tree of a problem with its sizes made smaller."""
    tree = ast.parse(source)
    for statement in tree.body:
        name = ast.unparse(statement.targets[0]) if isinstance(statement, ast.Assign) else ""
        value = _integer(statement.value) if isinstance(statement, ast.Assign) else None
        if isinstance(statement, ast.Assign) and value is not None and ("batch" in name.lower() or name in changes):
            wanted = changes.get(name, min(value, _BATCH))
            statement.value = ast.copy_location(ast.Constant(wanted), statement.value)
        else:
            is_size = isinstance(statement, (ast.Assign, ast.AnnAssign))
            _Shrink(changes, is_size or (isinstance(statement, ast.FunctionDef) and statement.name == "get_inputs")).visit(
                statement
            )
    return ast.fix_missing_locations(tree)


def shrink(value: int) -> int:
    """A smaller number that divides as ``value`` does: 4096 → 64, 224 → 112, 16000 → 1376.

    ``value`` itself where it is at most 16.
    """
    if value <= 1 << _KEPT:
        return value
    exponent = (value & -value).bit_length() - 1
    odd = value >> exponent
    if exponent > _KEPT:
        exponent = _KEPT + (exponent - _KEPT) // _STEP
    if odd > _ODD:
        odd = 33 + 2 * (odd % 8)
    return min(value, odd << exponent)


class _Shrink(ast.NodeTransformer):
    def __init__(self, changes: Changes, is_size: bool) -> None:
        self.changes, self.is_size = changes, is_size

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.expr):
            change = self.changes.get(ast.unparse(node))
            if isinstance(change, str):
                return ast.copy_location(ast.parse(change, mode="eval").body, node)
            value = _integer(node) if self.is_size and isinstance(node, (ast.Constant, ast.BinOp)) else None
            if value is not None:
                return ast.copy_location(ast.Constant(shrink(value)), node)
        return super().visit(node)


def _integer(node: ast.expr) -> int | None:
    """The value of an expression of integer literals, else None."""
    if not all(isinstance(n, (ast.BinOp, ast.operator, ast.Constant)) for n in ast.walk(node)):
        return None
    if not all(type(n.value) is int for n in ast.walk(node) if isinstance(n, ast.Constant)):
        return None
    value = eval(compile(ast.Expression(node), "<size>", "eval"))
    return value if isinstance(value, int) else None
