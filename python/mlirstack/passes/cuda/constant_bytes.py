"""The bytes of a constant tensor, as they lie on the device."""

from __future__ import annotations

import math
import re
import struct
from typing import Any

from mlirstack.bindings import ir
from mlirstack.passes.cuda.plan import Constant

_HEX = re.compile(r'"0x([0-9A-Fa-f]*)"')
_NUMBER = re.compile(r"0x[0-9A-Fa-f]+|-?\d[\d.eE+-]*")
_ALIGNMENT = 4  # bytes in front of the data of a resource, which say how it is aligned


def constant_of(attribute: Any) -> Constant:
    """An elements attribute as an entry of the launch plan; booleans take a byte, indices eight."""
    kind = ir.ShapedType(attribute.type)
    return Constant.of(str(kind.element_type), tuple(kind.shape), _bytes(attribute, kind))


def _bytes(attribute: Any, kind: Any) -> bytes:
    if isinstance(attribute, ir.DenseResourceElementsAttr) or str(attribute).startswith("dense_resource"):
        return _resource_bytes(attribute)
    if str(kind.element_type) == "bf16":
        return _bfloat_bytes(attribute, math.prod(kind.shape))
    import numpy as np

    return np.ascontiguousarray(np.array(attribute)).tobytes()


def _resource_bytes(attribute: Any) -> bytes:
    """What the bindings show of a resource is its text."""
    module = ir.Module.create(ir.Location.unknown(attribute.context))
    module.operation.attributes["mlirstack.value"] = attribute
    found = _HEX.search(module.operation.get_asm())
    return bytes.fromhex(found[1])[_ALIGNMENT:] if found else b""


def _bfloat_bytes(attribute: Any, count: int) -> bytes:
    """The bindings give out no bf16: its text is read, a number or its bits an element."""
    text = str(attribute).rsplit(" : ", 1)[0]
    whole = _HEX.search(text)
    if whole:
        data = bytes.fromhex(whole[1])
        return data if len(data) == 2 * count else data * count
    words = [_bfloat(number) for number in _NUMBER.findall(text)]
    return b"".join(words) if len(words) == count else words[0] * count


def _bfloat(number: str) -> bytes:
    if number.startswith("0x"):
        return int(number, 16).to_bytes(2, "little")
    return struct.pack("<f", float(number))[2:]  # exact: the text is that of a bf16
