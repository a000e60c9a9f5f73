"""LLVM dialect to LLVM IR text, in the spelling that released LLVM versions read.

The bindings print LLVM 24's new floating-point literals (``f0x3DCCCCCD``, ``+inf``); the code generator is LLVM 22, and so
are the ``opt`` and ``llc`` of most readers.  The bindings crash on an op that has no translation, so all ops are checked
first.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from mlirstack.bindings import dialect
from mlirstack.errors import StageError
from mlirstack.ir.diagnostics import source_line
from mlirstack.ir.ops import walk
from mlirstack.pipeline.step import Translation


@dataclass(frozen=True)
class TranslateToLlvmIr(Translation):
    """Before: nothing but the LLVM and OpenMP dialects.  After: LLVM IR text."""

    name = "mlirstack-translate-to-llvmir"

    def translate(self, payload: Any) -> str:
        for op in walk(payload):
            if op.name.split(".", 1)[0] not in ("llvm", "omp"):
                raise StageError(
                    f"'{op.name}' has no translation to LLVM IR",
                    stage="llvmir",
                    op=op.name,
                    location=source_line(op.location),
                )
        with payload.context:
            return classic_spelling(dialect("llvm").translate_module_to_llvmir(payload.operation))


def classic_spelling(text: str) -> str:
    """LLVM 24 text as LLVM 20 to 22 read it: literals in hexadecimal, attribute lists cut to what code generation needs.

    That is ``noinline``, ``"no-builtins"`` (no loop becomes a call of a library), and what NVVM says about kernels
    (``"nvvm.maxntid"="128"``).  LLVM knows the attributes of its
    intrinsics; the listed ones may be younger than the reader.
    """
    lines = []
    for line in text.splitlines():
        if line.startswith("; Function Attrs:"):
            continue
        if line.startswith("attributes #"):
            kept = _KEPT_ATTRIBUTE.findall(line)
            if kept:
                lines.append(line.partition(" = ")[0] + " = { " + " ".join(kept) + " }")
            continue
        if line.startswith("declare "):
            lines.append(re.sub(r" #\d+$", "", line))
        elif _MAY_HOLD_LITERAL.search(line):
            lines.append(_classic_literals(line))
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


_MAY_HOLD_LITERAL = re.compile(r"\d\.|f0x|inf|nan")  # far quicker than reading each line
_KEPT_ATTRIBUTE = re.compile(r'(?<= )(?:noinline|"no-builtins"|"nvvm\.\w+"(?:="[^"]*")?)(?= )')
_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"'  # strings and quoted names
    r"|;.*$"
    r"|[%@!#$][\w.$-]+"
    r"|\b(?P<type>float|double|half|bfloat)\b"
    r"|(?<![\w.%@$-])(?P<literal>[+-]?(?:f0x[0-9A-Fa-f]+|(?:s?nan|qnan|inf)(?:\(0x[0-9A-Fa-f]+\))?(?![\w.])"
    r"|\d+\.\d*(?:[eE][+-]?\d+)?))"
)
_FORMATS = {"half": (5, 10), "bfloat": (8, 7), "float": (8, 23), "double": (11, 52)}  # bits of exponent and fraction


def _classic_literals(line: str) -> str:
    kind = ""

    def replace(match: re.Match[str]) -> str:
        nonlocal kind
        if match["type"]:
            kind = match["type"]
        if not match["literal"]:
            return match.group()
        return _hexadecimal(_bits(match["literal"], kind), kind)

    return _TOKEN.sub(replace, line)


def _bits(literal: str, kind: str) -> int:
    """The bit pattern of a literal of LLVM type ``kind``."""
    exponent, fraction = _FORMATS[kind]
    body = literal.lstrip("+-")
    if body.startswith("f0x"):
        return int(body[3:], 16)
    sign = (1 << (exponent + fraction)) if literal.startswith("-") else 0
    everything = ((1 << exponent) - 1) << fraction
    if body == "inf":
        return sign | everything
    if "nan" in body:
        payload = re.search(r"\((0x[0-9A-Fa-f]+)\)", body)
        quiet = 0 if body.startswith("s") else 1 << (fraction - 1)
        return sign | everything | quiet | (int(payload[1], 16) if payload else 0)
    return sign | _nearest(body, kind)


@cache
def _nearest(decimal: str, kind: str) -> int:
    """The bit pattern nearest to a decimal number, ties to even.

    LLVM prints as many digits as tell a value from its neighbours, so the number is rarely exact, and rounding it to a
    double first could cross the middle between two neighbours.
    """
    exponent, fraction = _FORMATS[kind]
    value = Fraction(decimal)
    if value == 0:
        return 0
    bias = (1 << (exponent - 1)) - 1
    magnitude = value.numerator.bit_length() - value.denominator.bit_length()  # or one more than the power of two below
    power = max(magnitude if value >= Fraction(2) ** magnitude else magnitude - 1, 1 - bias)
    # The leading one of a normal number counts as one step of the exponent; a subnormal number has none.
    return ((power + bias - 1) << fraction) + round(value / Fraction(2) ** (power - fraction))


def _hexadecimal(bits: int, kind: str) -> str:
    """LLVM's classic hexadecimal literal; a float is written as the double of the same value."""
    if kind == "half":
        return f"0xH{bits:04X}"
    if kind == "bfloat":
        return f"0xR{bits:04X}"
    if kind == "double":
        return f"0x{bits:016X}"
    if bits & 0x7F800000 == 0x7F800000:  # inf and nan: widened by hand, which keeps the payload
        return f"0x{(bits >> 31) << 63 | 0x7FF << 52 | (bits & 0x7FFFFF) << 29:016X}"
    value = struct.unpack("<f", bits.to_bytes(4, "little"))[0]
    return f"0x{int.from_bytes(struct.pack('<d', value), 'little'):016X}"
