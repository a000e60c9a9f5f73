"""The program that calls kernels, set aside while they are lowered: it rides along with them as bytes.

As bytecode in an attribute of the module (large constants are not printed, so dumps stay readable), and as text where the
kernels are no MLIR any more.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np

from mlirstack.bindings import ir
from mlirstack.ir.text import module_bytecode

PROGRAM = "mlirstack.program"  # module attribute: the bytecode of the program that calls the kernels


def hide_program(module: Any, program: Any = None) -> None:
    """Let ``program``, or what ``module`` is now, ride along with ``module``."""
    data = module_bytecode(module if program is None else program)
    element = ir.IntegerType.get_signless(8)
    module.operation.attributes[PROGRAM] = ir.DenseElementsAttr.get(np.frombuffer(data, dtype=np.int8), type=element)


def hidden_program(module: Any) -> bytes:
    """The bytecode of the program that rides along with ``module``; empty where there is none."""
    if PROGRAM not in module.operation.attributes:
        return b""
    return np.array(ir.DenseIntElementsAttr(module.operation.attributes[PROGRAM]), dtype=np.int8).tobytes()


def packed_program(module: Any) -> str:
    """The program that rides along with ``module`` as text of one line; empty where there is none."""
    data = hidden_program(module)
    return base64.b64encode(zlib.compress(data, 9)).decode() if data else ""


def unpacked_program(text: str) -> bytes:
    """Inverse of :func:`packed_program`: MLIR bytecode."""
    return zlib.decompress(base64.b64decode(text))
