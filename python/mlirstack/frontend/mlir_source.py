""".mlir and .mlirbc files as programs: the entry function is found, the level told, the signature read off its type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.utils import _pytree as pytree

from mlirstack.bindings import ir, new_context
from mlirstack.errors import UsageError
from mlirstack.frontend.dtypes import parse_type
from mlirstack.frontend.program import ENTRY, ArgumentSpec, Dim, OutputSpec, Program, ResultSpec, Signature
from mlirstack.ir.detect import detect_level
from mlirstack.ir.ops import functions
from mlirstack.ir.text import read_module


def load_mlir(path: Path) -> Program:
    """The program in a .mlir or .mlirbc file, at the level that its dialects show.

    The entry is ``@main``, or the only public function under another name, which becomes ``@main``.  All its arguments are
    inputs.  Raises :class:`UsageError` for files that are missing, invalid, or without an entry.
    """
    return program_of_module(read_module(path, new_context()), path.stem, place=str(path))


def program_of_module(module: Any, name: str, *, place: str | None = None) -> Program:
    """As :func:`load_mlir`, for a module in memory; ``place`` names it in errors."""
    place = place or name
    level = detect_level(module)
    if level == "llvm":
        raise UsageError(
            f"{place} is in the LLVM dialect, where the arguments of the model cannot be told any more",
            hint="give a file of an earlier level",
        )
    entry = _entry(module, place)
    return Program(name, module, level, _signature(entry, place), {})


def _entry(module: Any, place: str) -> Any:
    public = []
    for op in functions(module):
        name = ir.StringAttr(op.attributes["sym_name"]).value
        if name == ENTRY:
            return op
        visibility = op.attributes.get("sym_visibility")
        if visibility is None or ir.StringAttr(visibility).value == "public":
            public.append((name, op))
    if len(public) == 1:
        (_, op) = public[0]
        with module.context:
            op.attributes["sym_name"] = ir.StringAttr.get(ENTRY)
        return op
    names = ", ".join(f"@{name}" for name, _ in public) or "none"
    raise UsageError(
        f"{place} has no function @{ENTRY}", hint=f"name the entry @{ENTRY}, or leave one public function (now: {names})"
    )


def _signature(entry: Any, place: str) -> Signature:
    function_type = ir.FunctionType(ir.TypeAttr(entry.attributes["function_type"]).value)
    inputs = [_type(str(t), f"arg{i}", place) for i, t in enumerate(function_type.inputs)]
    results = [_type(str(t), f"result{i}", place) for i, t in enumerate(function_type.results)]
    arguments = tuple(
        ArgumentSpec(f"arg{i}", "input", shape, dtype, leaf=i) for i, (shape, dtype) in enumerate(inputs)
    )  # fmt: skip
    outputs = tuple(
        OutputSpec("result", index=i, shape=shape, dtype=dtype, scalar=shape is None)
        for i, (shape, dtype) in enumerate(results)
    )
    leaf = 0
    one_or_tuple = leaf if len(results) == 1 else (leaf,) * len(results)
    names = [dim for shape, _ in inputs for dim in shape or () if isinstance(dim, str)]
    return Signature(
        arguments=arguments,
        results=tuple(ResultSpec(shape, dtype) for shape, dtype in results),
        outputs=outputs,
        in_spec=pytree.treespec_dumps(pytree.tree_structure(((leaf,) * len(inputs), {}))),
        out_spec=pytree.treespec_dumps(pytree.tree_structure(one_or_tuple)),
        dynamic=dict.fromkeys(names, (0, None)),
    )


def _type(text: str, name: str, place: str) -> tuple[tuple[Dim, ...] | None, str]:
    """Shape (None: a scalar) and dtype of an MLIR type; dynamic dimensions are called ``arg0_1`` after place and axis."""
    shape, dtype = parse_type(text)
    if dtype is None:
        raise UsageError(f"{place}: @{ENTRY} takes or returns a value of type {text}, which no torch value has")
    if shape is None:
        return None, dtype
    return tuple(f"{name}_{axis}" if size is None else size for axis, size in enumerate(shape)), dtype
