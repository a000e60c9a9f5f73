"""What decompositions take for granted about dynamic sizes.

A decomposition that branches on a size (``if size % 3 == 0``) is traced with the size of the example.  torch.export refuses
that while it captures a model, but not while it decomposes one: the program would give wrong answers for other sizes.
"""

from __future__ import annotations

from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.export import ExportedProgram

from mlirstack.errors import UnsupportedError
from mlirstack.frontend.graph import placeholders

_SPREAD = (0, 1, 2, 3, 4, 5, 6, 9, 11, 17, 30)  # how far above the smallest size others are tried


class Assumptions:
    """What is taken for granted of the sizes of ``program`` from here on."""

    def __init__(self, program: ExportedProgram) -> None:
        self._names: dict[Any, Any] = {}
        self._environment: Any = None
        for node in placeholders(program.graph_module.graph):
            value = node.meta.get("val")
            for axis, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
                if isinstance(size, torch.SymInt):
                    self._environment = size.node.shape_env
                    if size.node.expr.is_Symbol:
                        name = sympy.Symbol(f"{node.name}.shape[{axis}]", integer=True, positive=True)
                        self._names.setdefault(size.node.expr, name)
        self._before = len(self._guards())

    def _guards(self) -> list[Any]:
        return [guard.expr for guard in self._environment.guards] if self._environment is not None else []

    def refuse(self) -> None:
        """:class:`UnsupportedError` where a size was decided on that may vary.

        That a size is not 0 or not 1 is no such decision: what is computed for others holds there.  Neither is what holds
        for all sizes that are tried, though torch cannot prove it.
        """
        new = [guard for guard in self._guards()[self._before :] if not _is_not_small(guard)]
        decided = [guard for guard in new if not self._holds(guard)]
        if decided:
            held = [f"\n  {guard.subs(self._names)}" for guard in decided]
            raise UnsupportedError(
                "the decomposition of an operation does not hold for all sizes that dynamic dimensions allow, but for"
                + "".join(dict.fromkeys(held)),
                hint="leave these dimensions as they are in the example",
            )

    def _holds(self, guard: Any) -> bool:
        symbols = sorted(guard.free_symbols, key=str)
        tried = [self._sizes(symbol) for symbol in symbols]
        for step in range(3 * len(_SPREAD)):
            sizes = [given[(step * (place + 1)) % len(given)] for place, given in enumerate(tried)]
            if guard.subs(dict(zip(symbols, sizes, strict=True))) == sympy.false:
                return False
        return True

    def _sizes(self, symbol: Any) -> list[int]:
        known = self._environment.var_to_range.get(symbol)
        low = max(2, int(known.lower)) if known is not None else 2
        return [low + n for n in _SPREAD if n == 0 or known is None or low + n <= known.upper]


def _is_not_small(guard: Any) -> bool:
    return isinstance(guard, sympy.Ne) and guard.rhs in (0, 1)
