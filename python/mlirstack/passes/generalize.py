"""Named linalg ops as ``linalg.generic``, chosen by what they are: fusion and unit-dimension folding work on generic ops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlirstack.bindings import dialect
from mlirstack.ir.ops import walk
from mlirstack.pipeline.step import Schedule

_KEPT = frozenset({"linalg.generic", "linalg.fill"})


@dataclass(frozen=True)
class GeneralizeNamed(Schedule):
    """Before: named linalg ops.  After: elementwise ops, transposes, broadcasts and reductions are generic; with
    ``windows=true`` so are contractions, convolutions and poolings.  Fills keep their name."""

    name: ClassVar[str] = "mlirstack-generalize-named"
    windows: bool = False

    def build(self, module: Any) -> str | None:
        names = sorted({op.name for op in walk(module) if self._is_wanted(op)})
        if not names:
            return None
        listing = ", ".join(f'"{name}"' for name in names)
        return f"""
module attributes {{transform.with_named_sequence}} {{
  transform.named_sequence @__transform_main(%module: !transform.any_op) {{
    %named = transform.structured.match ops{{[{listing}]}} in %module : (!transform.any_op) -> !transform.any_op
    transform.structured.generalize %named : (!transform.any_op) -> !transform.any_op
    transform.yield
  }}
}}
"""

    def _is_wanted(self, op: Any) -> bool:
        linalg = dialect("linalg")
        if not op.name.startswith("linalg.") or op.name in _KEPT or linalg.get_indexing_maps(op) is None:
            return False
        # Poolings are convolutions in this sense: a window slides.
        return self.windows or not (linalg.isa_contraction_op(op) or linalg.isa_convolution_op(op))
