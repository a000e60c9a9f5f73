"""Names that a compiled IREE module and whoever loads it agree on; light, for machines that hold no compiler."""

from __future__ import annotations

SCOPE = "model"  # of the archive that fills the globals

# In the reflection of @main, as JSON:
PARAMETERS = "mlirstack.parameters"  # names of the parameters that became globals
ARGUMENTS = "mlirstack.arguments"  # positions of the program's arguments that the module takes; without it, all
WRITTEN = "mlirstack.written"  # positions of the arguments that the module may write to
KERNELS = "mlirstack.kernels"  # our own kernels inside the module: files, checksums, exports
