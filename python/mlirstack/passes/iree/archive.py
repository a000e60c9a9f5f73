"""Names that a compiled IREE module and whoever loads it agree on; light, for machines that hold no compiler."""

from __future__ import annotations

from typing import Any

# Files of an artifact:
MODULE = "module.vmfb"
ENCODER = "encoder.vmfb"  # of one whose parameters are yet to be packed

SCOPE = "model"  # of the archive that fills the globals
PACKED = "packed"  # of the archive of what was made of them when the module was built

# In the reflection of @main, as JSON:
PARAMETERS = "mlirstack.parameters"  # names of the parameters that became globals
ARGUMENTS = "mlirstack.arguments"  # positions of the program's arguments that the module takes; without it, all
WRITTEN = "mlirstack.written"  # positions of the arguments that the module may write to
KERNELS = "mlirstack.kernels"  # our own kernels inside the module: files, checksums, exports
KERNELS_BEGIN = '{"kernels":['  # what that begins with
CHECKS = "mlirstack.checks"  # messages of the checks whose outcome is one more result: a byte each, 0 where one failed
RESULTS = "mlirstack.results"  # for each result its sizes, where the module takes its memory from the caller, else null

LINKED_OBJECT = "kernels.o"  # the object for processors that IREE's compiler links, beside its input
OBJECT_CARRIER = "kernels.elf"  # what its bytes are called inside a module, where the compiler does not look at them

Size = int | list[Any]
"""A size of a result: a number; ``[argument]``, an integer; ``[argument, axis]``, a size; or ``[operator, size, size]``.
Arguments are counted as the program's signature has them."""
