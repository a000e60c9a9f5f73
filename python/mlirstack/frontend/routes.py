"""Which way a program goes from the torch dialect to linalg, and why: through TOSA where that tells the truth.

TOSA is tried first; it has no unsigned integers, complex numbers or float64, and torch-mlir's conversion gives wrong answers
for some of them without an error.  What is known to go wrong is told from the graph before anything is lowered.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from mlirstack.bindings import ir
from mlirstack.errors import SourceLine, StageError, UnsupportedError, UnsupportedOp, UsageError
from mlirstack.frontend.decompositions.empty_tensors import is_empty
from mlirstack.frontend.dtypes import parse_type
from mlirstack.frontend.graph import (
    FxGraph,
    calls,
    describe,
    dtype_name,
    node_source,
    node_tensors,
    operand_dtypes,
    placeholders,
)
from mlirstack.frontend.onnx.importer import first_failing_operator, unsupported_operators
from mlirstack.frontend.onnx.refusals import refused_operators
from mlirstack.frontend.program import Program
from mlirstack.frontend.replace_nodes import applies
from mlirstack.frontend.tosa.rules import costly_rules
from mlirstack.frontend.unsupported import failing_nodes
from mlirstack.ir.diagnostics import source_line
from mlirstack.ir.level import LEVELS
from mlirstack.ir.ops import walk
from mlirstack.pipeline.stage import Pipeline, Stage

aten = torch.ops.aten

ROUTES = ("auto", "tosa", "linalg")

_NOT_IN_TOSA = {
    **{f"uint{bits}": "TOSA's integers have no sign: unsigned values come out as negative" for bits in (8, 16, 32, 64)},
    **dict.fromkeys(("complex32", "complex64", "complex128"), "TOSA has no complex numbers"),
}

# Dtypes that lie outside of TOSA's base profile; the conversion and what is below it take them all the same.
_BEYOND_TOSA = {
    "float64": "TOSA's base profile has no float64",
}
_SUMS_BEYOND_TOSA = (aten.add, aten.sub, aten.rsub)  # of int64: see LowerLongSums

# Formulas whose numbers the conversion to TOSA rounds to float32, whatever the dtype of the tensor.
_ROUGH_IN_FLOAT64 = (aten.gelu, aten.gelu_backward, aten.log2, aten.leaky_relu)

# What TOSA says right, but takes apart into so many ops, or so roughly, that the linalg route is tried first.
_BETTER_IN_LINALG: dict[Any, str] = {
    aten.sort: "TOSA has no sort: it would become a minimum and a gather for every position",
    aten.topk: "TOSA has no sort: it would become a maximum and a gather for every position",
    aten.cumsum: "TOSA has no scan: it would become a sum for every position",
    aten.atan: "TOSA has no arc tangent: it would become a polynomial whose last four bits are wrong",
}

_LARGEST_RANGE = 2**18  # numbers; folding what is computed from a million takes minutes

_WITHOUT_CONVERSION = ("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")  # torch-mlir has their types only

# Operations, the dtypes of operands on which their conversion ends the process, and what these are.
_CRASHES = (
    ((aten.prod,), "complex", "complex numbers"),
    ((aten.max_pool3d_with_indices,), "int64", "integers of 64 bits"),
)


@dataclass(frozen=True)
class Route:
    """The route to try, why, and the route to try when it fails (None: there is no other)."""

    name: str
    reason: str
    fallback: str | None = None


@dataclass(frozen=True)
class Objection:
    """One thing in a program that TOSA cannot be trusted with."""

    what: str
    reason: str
    source: SourceLine | None = None

    def __str__(self) -> str:
        return f"{self.what}{f' at {self.source}' if self.source else ''}: {self.reason}"


def choose_route(program: Program, requested: str = "auto") -> Route:
    """The route for ``program``: ``requested`` is auto, tosa or linalg.

    Raises :class:`UnsupportedError` listing every operation that draws random numbers (unless it was exported so that the
    program draws its own), and every reason why a ``requested`` TOSA would give wrong answers.
    """
    if requested not in ROUTES:
        raise UsageError(f"unknown route '{requested}'", hint=f"routes: {', '.join(ROUTES)}")
    if isinstance(program.payload, FxGraph) and program.payload.random_ops:
        raise UnsupportedError(
            f"{program.name} draws random numbers, so no compiled answer can be eager's",
            program.payload.random_ops,
            hint="call model.eval() if they are for training only; draw them outside and pass them in as an input; or let "
            "the program draw numbers of its own: mlirstack.compile(..., allow_random=True)",
        )
    if isinstance(program.payload, FxGraph):
        _refuse_crashes(program.name, program.payload)
    if program.level == "onnx" and (refused := refused_operators(program.payload)):
        raise UnsupportedError(f"{program.name}: no compiled answer can be the model's", refused)
    if program.level == "onnx" and requested == "auto":
        return Route("linalg", "what TOSA says wrong is not known of ONNX operators")
    if program.level not in ("fx", "torch", "onnx"):
        return _route_below_torch(program.level, requested)
    if requested == "linalg":
        return Route("linalg", "asked for")
    objections = list(_objections(program))
    preferred = next(_preferences(program), None)
    if not objections and preferred is not None and requested == "auto":
        return Route("linalg", str(preferred), "tosa")
    if not objections:
        return Route("tosa", "asked for") if requested == "tosa" else Route("tosa", "TOSA is tried first", "linalg")
    if requested == "tosa":
        raise UnsupportedError(
            f"{program.name} cannot go through TOSA",
            tuple(UnsupportedOp(o.what, o.reason, o.source) for o in objections),
            hint="use --route auto or linalg",
        )
    return Route("linalg", str(objections[0]))


def _refuse_crashes(name: str, graph: FxGraph) -> None:
    """Operations on which torch-mlir's conversion ends the process instead of failing."""
    ops = tuple(
        UnsupportedOp(describe(node), f"torch-mlir cannot lower it for {numbers}", node_source(node))
        for node in calls(graph.module)
        for packets, kind, numbers in _CRASHES
        if getattr(node.target, "overloadpacket", None) in packets
        and any(dtype.startswith(kind) for dtype in operand_dtypes(node))
    )
    ops += tuple(
        UnsupportedOp(describe(node), f"there is no conversion to or from {dtype}", node_source(node))
        for node in calls(graph.module)
        for dtype in dict.fromkeys(dtype_name(tensor.dtype) for tensor in node_tensors(node))
        if dtype in _WITHOUT_CONVERSION
    )
    if ops:
        raise UnsupportedError(f"{name}: {len(ops)} operation(s) cannot be lowered", ops)


def _route_below_torch(level: str, requested: str) -> Route:
    if level == "tosa":
        if requested == "linalg":
            raise UsageError("the module stands at level 'tosa' already, so route 'linalg' cannot be taken")
        return Route("tosa", "the module stands at level 'tosa'")
    if not LEVELS[level].is_module or level in ("stablehlo", "llvm"):
        raise UsageError(f"no route leads from level '{level}' to linalg", hint="start at torch, tosa, linalg or below")
    return Route("linalg", f"the module stands at level '{level}', where the routes have met")


# ------------------------------------------------------------------------------------------------------------ objections


def _objections(program: Program) -> Iterator[Objection]:
    for argument in program.signature.arguments:
        if argument.shape is None:
            yield Objection(f"input '{argument.name}'", "TOSA has no scalar arguments")
    for index, result in enumerate(program.signature.results):
        if result.shape is None:
            yield Objection(f"result {index}", "TOSA has no scalar results")
    if isinstance(program.payload, FxGraph):
        yield from _graph_objections(program.payload)
    else:
        yield from _module_objections(program.payload)


def _graph_objections(graph: FxGraph) -> Iterator[Objection]:
    seen: set[tuple[str, SourceLine | None]] = set()
    for node in (*placeholders(graph.module.graph), *calls(graph.module)):
        source = node_source(node)
        what = f"'{node.name}'" if node.op == "placeholder" else describe(node)
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            yield Objection(what, "TOSA has no control flow of torch's kind", source)
        elif torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            yield Objection(what, "TOSA would bake the random numbers into the program", source)
        if getattr(node.target, "overloadpacket", None) is aten.arange:
            count = max((tensor.numel() for tensor in node_tensors(node)), default=0)
            if isinstance(count, int) and count > _LARGEST_RANGE:
                yield Objection(
                    what, f"TOSA would hold {count} numbers as a constant, and fold what is computed from them", source
                )
        for reason in (_float64_is_rounded(node), _product_with_zero(node), _real_remainder(node), _lost_reciprocal(node)):
            if reason is not None:
                yield Objection(what, reason, source)
        for tensor in node_tensors(node):
            if is_empty(tensor):
                yield Objection(what, "TOSA has no tensors without elements", source)
            name = dtype_name(tensor.dtype)
            if name in _NOT_IN_TOSA and (name, source) not in seen:
                seen.add((name, source))
                yield Objection(f"{name} in {what}", _NOT_IN_TOSA[name], source)


def _float64_is_rounded(node: fx.Node) -> str | None:
    """Why a value of float64 would only be as good as float32, or None."""
    if not any(tensor.dtype == torch.float64 for tensor in node_tensors(node)):
        return None
    if getattr(node.target, "overloadpacket", None) in _ROUGH_IN_FLOAT64:
        return "TOSA would compute it in float64 with numbers rounded to float32"
    numbers = (value for value in pytree.tree_leaves((node.args, node.kwargs)) if isinstance(value, (int, float)))
    rounded = next((number for number in numbers if not _is_float32(number)), None)
    return None if rounded is None else f"TOSA would round the number {rounded} to float32"


def _product_with_zero(node: fx.Node) -> str | None:
    """Why a product with zero would be zero, whatever the other factor, or None."""
    if getattr(node.target, "overloadpacket", None) is not aten.mul or not any(map(_is_zero, node.args)):
        return None
    if not any(tensor.is_floating_point() for tensor in node_tensors(node)):
        return None
    return "TOSA would take a product with zero for zero, though the other factor be NaN or infinite"


def _real_remainder(node: fx.Node) -> str | None:
    """Why a remainder would be off by many divisors, or None."""
    if getattr(node.target, "overloadpacket", None) is not aten.remainder or not node.meta["val"].is_floating_point():
        return None
    return "TOSA would take the remainder of real numbers from their rounded quotient"


def _lost_reciprocal(node: fx.Node) -> str | None:
    """Why a quotient would be lost with the reciprocal of its divisor, or None."""
    if getattr(node.target, "overloadpacket", None) is not aten.div:
        return None
    divisor = _filled(node.args[1])
    if divisor is None or divisor == 0 or math.isnan(divisor) or 2.0**-126 <= abs(divisor) <= 2.0**126:
        return None
    return f"TOSA would multiply by the reciprocal of {divisor}"


def _filled(value: Any) -> float | None:
    """A number, or the one that makes a tensor; None where it is neither."""
    if isinstance(value, fx.Node):
        is_filled = getattr(value.target, "overloadpacket", None) in (aten.full, aten.full_like, aten.scalar_tensor)
        value = value.args[-1] if is_filled else None
    return value if isinstance(value, (int, float)) else None


def _is_zero(value: Any) -> bool:
    """Whether a number, or what makes a tensor of one number, is zero."""
    return _filled(value) == 0


def _is_float32(number: float) -> bool:
    return math.isnan(number) or torch.tensor(number, dtype=torch.float32).item() == number


def _preferences(program: Program) -> Iterator[Objection]:
    """Operations for the sake of which the linalg route is tried first."""
    if not isinstance(program.payload, FxGraph):
        return
    for node in (*placeholders(program.payload.module.graph), *calls(program.payload.module)):
        what = f"'{node.name}'" if node.op == "placeholder" else describe(node)
        packet = getattr(node.target, "overloadpacket", None)
        names = [dtype_name(tensor.dtype) for tensor in node_tensors(node)]
        reasons = [_BEYOND_TOSA[name] for name in names if name in _BEYOND_TOSA]
        if packet in _SUMS_BEYOND_TOSA and "int64" in names:
            reasons.append("TOSA's base profile has no sums of int64")
        if packet in _BETTER_IN_LINALG:
            reasons.append(_BETTER_IN_LINALG[packet])
        if applies(node, costly_rules()):
            reasons.append("TOSA has no operation for it: it would be taken apart")
        yield from (Objection(what, reason, node_source(node)) for reason in reasons)


def _module_objections(module: ir.Module) -> Iterator[Objection]:
    """The same for a module of the torch dialect, where types tell."""
    for op in walk(module):
        for value in op.results:
            _, dtype = parse_type(str(value.type))
            # Python numbers of the model have type !torch.float as well.
            reason = _NOT_IN_TOSA.get(dtype or "") or _BEYOND_TOSA.get(dtype or "")
            if reason and str(value.type).startswith("!torch.v"):
                yield Objection(f"{dtype} in '{op.name}'", reason, source_line(op.location))


# -------------------------------------------------------------------------------------------------------------- failures

_ILLEGAL = re.compile(
    r"failed to legalize operation '(?P<op>[\w.]+)'"
    r"(?:.*?name = \"(?P<unknown>[\w.]+)\")?"  # torch.operator: an op that the torch dialect does not have
    r"(?:.*?: \((?P<operands>[^()]*)\) ->)?",
    re.DOTALL,
)
_TENSOR_TYPE = re.compile(r"!torch\.v?tensor<\[[^\]]*\],(?:[^<>]|<\w+>)+>")


def route_failure_reason(error: StageError) -> str:
    """Why a route was left, in one line: the op with its overload and dtypes, the pass that refused it, the user's line."""
    place = f" at {error.location}" if error.location else ""
    found = _ILLEGAL.search(error.message)
    if found is None:
        lines = error.message.strip().splitlines() or ["no message"]
        return f"{lines[0][:200]} ({_where(error)}){place}"
    name = (found["unknown"] or found["op"]).removeprefix("torch.")
    if name.startswith("constant."):  # the first thing left over by an op that no pattern matched
        return f"an operation with a constant operand {_refusal(error)}{place}"
    dtypes = [parse_type(text)[1] for text in _TENSOR_TYPE.findall(found["operands"] or "")]
    return f"{name}({', '.join(d for d in dtypes if d)}) {_refusal(error)}{place}"


def _refusal(error: StageError) -> str:
    found = _ILLEGAL.search(error.message)
    if found is None:
        return f"fails in {_where(error)}: {error.message.strip().splitlines()[0][:200]}"
    return "is unknown to torch-mlir" if found["unknown"] else f"has no lowering in {_where(error)}"


def _where(error: StageError) -> str:
    return f"pass '{error.pass_name}'" if error.pass_name else f"stage '{error.stage}'"


def unsupported_ops(
    program: Program, failures: Sequence[StageError], tables: Sequence[Pipeline]
) -> tuple[UnsupportedOp, ...]:  # fmt: skip
    """All operations of ``program`` that no route can express, each with overload, dtypes and the user's line.

    ``failures`` are the errors of the stage tables ``tables``, in order.  Each operation is lowered alone through all tables
    down to linalg, so the list is complete; it is empty where only the whole fails, and for modules without a graph.  Of
    ONNX all operators without a conversion are named, else the first that a later step cannot lower.
    """
    if program.level == "onnx" and (left := unsupported_operators(program.payload)):
        return left
    fronts = [_front(table) for table in tables]
    if not all(any(f.stage == stage.name for stage in front) for f, front in zip(failures, fronts, strict=True)):
        return ()
    if program.level == "onnx":
        first = first_failing_operator(program.payload, fronts)
        return (UnsupportedOp(first[0], _refusal(first[1])),) if first else ()
    if not isinstance(program.payload, FxGraph):
        return ()
    failing = failing_nodes(program.payload, fronts)
    # A decomposition may leave the same op many times at one line.
    return tuple(dict.fromkeys(UnsupportedOp(describe(node), _refusal(error), node_source(node)) for node, error in failing))


def _front(table: Pipeline) -> tuple[Stage, ...]:
    """The stages of ``table`` up to the first that stands at linalg."""
    names = [stage.level_name for stage in table.stages]
    return table.stages[: names.index("linalg") + 1] if "linalg" in names else table.stages
