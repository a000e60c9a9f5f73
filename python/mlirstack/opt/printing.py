"""The result as text or bytecode, as the printing flags ask for."""

from __future__ import annotations

import io
from typing import Any

from mlirstack.opt.flags import Invocation
from mlirstack.opt.resources import Resources, with_resources


def output(operation: Any, invocation: Invocation, resources: Resources | None = None) -> bytes:
    """``operation`` as the command line wants it written; text includes the external ``resources``."""
    if invocation.on("emit-bytecode"):
        buffer = io.BytesIO()
        operation.write_bytecode(buffer, desired_version=invocation.number("emit-bytecode-version"))
        return buffer.getvalue()
    if invocation.on("mlir-print-value-users"):
        from mlirstack.opt.users import with_users

        written = with_users(operation, invocation)
    else:
        written = text(operation, invocation) + "\n"
    limit = invocation.number("mlir-elide-resource-strings-if-larger")
    return encode(with_resources(written, resources or {}, limit))


def text(operation: Any, invocation: Invocation, **extra: bool) -> str:
    """The assembly text of ``operation`` under the printing flags."""
    limits = {
        name: value
        for name, flag in (
            ("large_elements_limit", "mlir-elide-elementsattrs-if-larger"),
            ("large_resource_limit", "mlir-elide-resource-strings-if-larger"),
        )
        if (value := invocation.number(flag)) is not None
    }
    flags = {
        "enable_debug_info": invocation.on("mlir-print-debuginfo"),
        "pretty_debug_info": invocation.on("mlir-pretty-debuginfo"),
        "print_generic_op_form": invocation.on("mlir-print-op-generic"),
        "use_local_scope": invocation.on("mlir-print-local-scope"),
        "use_name_loc_as_prefix": invocation.on("mlir-use-nameloc-as-prefix"),
        "assume_verified": invocation.on("mlir-print-assume-verified"),
        "skip_regions": invocation.on("mlir-print-skip-regions"),
    }
    result: str = operation.get_asm(**limits, **(flags | extra))
    return result


def encode(text_of: str) -> bytes:
    """UTF-8, with bytes that were none kept as they came."""
    return text_of.encode("utf-8", "surrogateescape")
