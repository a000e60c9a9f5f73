"""What is inside a vmfb: our own kernels, found again byte for byte.

IREE checks nothing of kernels that were compiled elsewhere, and an executable that nothing refers to is dropped without a
word.  So each build looks for what it put in, and fails where something is missing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlirstack.errors import StageError
from mlirstack.passes.iree.archive import KERNELS_BEGIN
from mlirstack.passes.iree.code import find_code
from mlirstack.passes.iree.packed import PackedModule
from mlirstack.pipeline.step import Translation


@dataclass(frozen=True)
class CheckKernels(Translation):
    """Before: a vmfb whose program was given kernels of ours.  After: the same; :class:`StageError` where it does not hold
    each of them: the bytes of the object, and every kernel's name beside it and in it; of objects that are linked, the bytes
    of every function."""

    name = "mlirstack-iree-check-kernels"

    def translate(self, payload: bytes | PackedModule) -> bytes | PackedModule:
        vmfb = payload.data if isinstance(payload, PackedModule) else payload
        described = kernels_of(vmfb)
        if described is None:
            raise StageError("the vmfb does not say which kernels were put into it", stage="vmfb")
        lost = missing_kernels(vmfb, described)
        if lost:
            raise StageError(
                f"the vmfb has lost kernels: {'; '.join(lost)}",
                stage="vmfb",
                hint="the stage 'iree-flow' of a dump shows which dispatches IREE kept; --kernels iree builds without ours",
            )
        return payload


def kernels_of(vmfb: bytes) -> list[dict[str, Any]] | None:
    """The description of the kernels that were put into a vmfb; None where none were."""
    begin = vmfb.find(KERNELS_BEGIN.encode())
    if begin < 0:
        return None
    end = vmfb.index(b"\0", begin)
    found: list[dict[str, Any]] = json.JSONDecoder().raw_decode(vmfb[begin:end].decode("latin-1"))[0]["kernels"]
    return found


def missing_kernels(vmfb: bytes, described: Sequence[Mapping[str, Any]]) -> list[str]:
    """What of ``described`` is not in ``vmfb``, in words."""
    problems = []
    for kernels in described:
        if "code" in kernels:
            lost = [name for name, code in kernels["code"].items() if find_code(vmfb, code) is None]
            problems += [f"the code of {kernels['file']} for '{name}' is not there" for name in lost]
            continue
        place = _find(vmfb, kernels)
        if place is None:
            problems.append(f"the {kernels['bytes']} bytes of {kernels['file']} are not there")
            continue
        image, rest = vmfb[place : place + kernels["bytes"]], vmfb[:place] + vmfb[place + kernels["bytes"] :]
        said = json.dumps(kernels["exports"], separators=(",", ":")).encode()
        rest = rest.replace(said, b"")  # the description itself
        for name in kernels["exports"]:
            if name.encode() not in image:
                problems.append(f"{kernels['file']} has no symbol '{name}'")
            if name.encode() not in rest:
                problems.append(f"no dispatch can call '{name}'")
    return problems


def _find(vmfb: bytes, kernels: Mapping[str, Any]) -> int | None:
    """Where the bytes of an object begin."""
    head, place = bytes.fromhex(kernels["head"]), -1
    while (place := vmfb.find(head, place + 1)) >= 0:
        if hashlib.sha256(vmfb[place : place + kernels["bytes"]]).hexdigest() == kernels["sha256"]:
            return place
    return None
