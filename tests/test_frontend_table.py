"""Rules of a decomposition table: where one applies, and what is asked where it does not."""

from __future__ import annotations

from typing import Any

from mlirstack.frontend.decompositions.extend import extend


def test_a_rule_leaves_what_it_does_not_apply_to_to_the_one_before() -> None:
    table: dict[Any, Any] = {"known": lambda x, *, scale=1: ("earlier", x, scale)}
    for op in ("known", "new"):
        extend(table, op, lambda x, *, scale=1: ("rule", x) if x > 0 else NotImplemented)
    assert table["known"](2, scale=3) == ("rule", 2)
    assert table["known"](-2, scale=3) == ("earlier", -2, 3)
    assert table["new"](-2) is NotImplemented
