"""The program that calls kernels, set aside while they are lowered: it rides along with them as bytes.

As bytecode in an attribute of the module (large constants are not printed, so dumps stay readable), and as text where the
kernels are no MLIR any more.
"""

from __future__ import annotations

import base64
import zlib
from collections import Counter
from typing import Any

import numpy as np

from mlirstack.bindings import ir, new_context
from mlirstack.ir.ops import walk
from mlirstack.ir.text import module_bytecode, parse_module

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


def left_alone(text: str) -> str:
    """What :func:`packed_program` has packed computes itself, besides calling kernels: its ops by the type of their result,
    most frequent first, in one line; empty where that is nothing."""
    if not text:
        return ""
    module = parse_module(unpacked_program(text), new_context())
    ops = [op for op in walk(module) if op.name.startswith("linalg.")]
    kinds = Counter(f"{op.name} {op.results[0].type}" for op in ops if op.name not in _PARTS and len(op.results))
    return ", ".join(f"{kind}{f' ({count})' if count > 1 else ''}" for kind, count in kinds.most_common())


_PARTS = ("linalg.fill", "linalg.yield", "linalg.index")  # of other ops
