"""Names that a compiled IREE module and whoever loads it agree on; light, for machines that hold no compiler."""

from __future__ import annotations

SCOPE = "model"  # of the archive that fills the globals
REFLECTION = "mlirstack.parameters"  # in the reflection of @main: JSON list of the parameters that became globals
