"""Operations that no upstream pass lowers for NVIDIA GPUs, or only for some types, as functions of operations that it does.

Each function is MLIR text, one per operation and type, put into the ``gpu.module`` that calls it; LLVM inlines it.  On
vectors it is called for each element.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import walk
from mlirstack.passes import functions as functions_of
from mlirstack.passes.cuda import expansion_functions as functions
from mlirstack.pipeline.step import PythonPass

WARP = 32


@dataclass(frozen=True)
class Function:
    """A function to call instead of an operation."""

    name: str
    text: str


@dataclass(frozen=True)
class ExpandKernelOps(PythonPass):
    """Before: kernels in gpu, arith, math and memref ops.  After: none of them is one that convert-gpu-to-nvvm refuses,
    leaves behind or gets wrong: integer powers, powers that torch computes otherwise, powers with exponents of other than
    32 bits, 8-bit floats, shuffles of other than 32 bits, reductions of a warp, reductions of narrow floats over a block,
    atomic products.
    """

    name = "mlirstack-nvvm-expand"

    def apply(self, module: Any) -> None:
        for kernels in [op for op in walk(module) if op.name == "gpu.module"]:
            for op in walk(kernels):
                if op.name in _REWRITES:
                    _REWRITES[op.name](op)
            # What a function is made of may have to be expanded in turn: the shuffles of a reduction.
            while _call_functions(kernels):
                pass


def _call_functions(kernels: Any) -> bool:
    """Replace ops that have a function by calls of it; were there any?"""
    found = [(op, f) for op in walk(kernels) if op.name in _FUNCTIONS and (f := _FUNCTIONS[op.name](op))]
    body = kernels.regions[0].blocks[0]
    defined = {ir.StringAttr(op.attributes["sym_name"]).value for op in body if "sym_name" in op.attributes}
    for op, function in found:
        if function.name not in defined:
            defined.add(function.name)
            parsed = ir.Module.parse(function.text)
            parsed.body.operations[0].operation.clone(ir.InsertionPoint.at_block_begin(body))
        with ir.InsertionPoint(op), op.location:
            results = _call(function.name, op)
        for old, new in zip(op.results, results, strict=True):
            old.replace_all_uses_with(new)
        op.erase()
    return bool(found)


def _call(function: str, op: Any) -> list[Any]:
    """The results of ``op`` from one call, or from one for each element of a vector."""
    func = dialect("func")
    vector = op.results[0].type
    if not isinstance(vector, ir.VectorType):
        return list(func.call([result.type for result in op.results], function, list(op.operands)).owner.results)
    vectors = dialect("vector")
    elements = []
    for position in itertools.product(*map(range, vector.shape)):
        scalars = [vectors.extract(operand, [], list(position)) for operand in op.operands]
        elements.append(func.call([vector.element_type], function, scalars))
    return [vectors.from_elements(vector, elements)]


# ------------------------------------------------------------------------------------------------------------- functions


def _element(value: Any) -> str:
    kind = value.type
    return str(kind.element_type if isinstance(kind, ir.VectorType) else kind)


def _function(template: str, name: str, **holes: object) -> Function:
    symbol = "mlirstack_" + re.sub(r"\W+", "_", name)
    return Function(symbol, template.format(name=symbol, **holes))


def _integer_power(op: Any) -> Function:
    kind = _element(op.results[0])
    return _function(functions.INTEGER_POWER, f"ipowi_{kind}", t=kind)


def _is_normal(op: Any) -> Function:
    kind = _element(op.operands[0])
    return _function(functions.IS_NORMAL, f"isnormal_{kind}", t=kind)


def _to_float8(op: Any) -> Function | None:
    source, kind = _element(op.operands[0]), _element(op.results[0])
    if kind not in functions.FLOAT8:
        return None
    widen = _convert("%x", "%given", source, "f32")
    return _function(
        functions.TO_FLOAT8, f"{source}_to_{kind}", source=source, t=kind, widen=widen, **functions.FLOAT8[kind]
    )


def _from_float8(op: Any) -> Function | None:
    source, kind = _element(op.operands[0]), _element(op.results[0])
    if source not in functions.FROM_FLOAT8:
        return None
    narrow = _convert("%r", "%wide", "f32", kind)
    return _function(functions.FROM_FLOAT8[source], f"{source}_to_{kind}", t=kind, narrow=narrow)


_BITS = {"f16": 16, "bf16": 16, "i16": 16, "f32": 32, "i32": 32, "f64": 64, "i64": 64}


def _convert(result: str, value: str, source: str, target: str) -> str:
    """A line that brings ``value`` from one float type to another."""
    if source == target:
        return f"  {result} = arith.bitcast {value} : {source} to {target}"
    name = "arith.extf" if _BITS[source] < _BITS[target] else "arith.truncf"
    return f"  {result} = {name} {value} : {source} to {target}"


def _shuffle(op: Any) -> Function | None:
    kind = _element(op.operands[0])
    mode = _keyword(op.attributes["mode"])
    templates = {16: functions.SHUFFLE_16, 64: functions.SHUFFLE_64}
    template = templates.get(_BITS.get(kind, 0))
    return _function(template, f"shuffle_{mode}_{kind}", t=kind, mode=mode) if template else None


def _subgroup_reduce(op: Any) -> Function:
    """A butterfly of shuffles; narrow floats are added up in f32."""
    kind, reduction = _element(op.operands[0]), _keyword(op.attributes["op"])
    wide = "f32" if kind in ("f16", "bf16") else kind
    size = ir.IntegerAttr(op.attributes["cluster_size"]).value if "cluster_size" in op.attributes else WARP
    stride = ir.IntegerAttr(op.attributes["cluster_stride"]).value
    combine = f"arith.{reduction}" + (
        ("f" if wide[0] == "f" else "i") if reduction in ("add", "mul", "and", "or", "xor") else ""
    )
    name = f"subgroup_{reduction}_{kind}_{size}_{stride}"
    lines = [
        f"func.func private @{{name}}(%x: {kind}) -> {kind} {{{{",
        f"  %width = arith.constant {WARP} : i32",
        _convert("%v0", "%x", kind, wide),
    ]
    steps = size.bit_length() - 1
    for step in range(steps):
        lines += [
            f"  %offset{step} = arith.constant {stride << step} : i32",
            f"  %other{step}, %valid{step} = gpu.shuffle xor %v{step}, %offset{step}, %width : {wide}",
            f"  %v{step + 1} = {combine} %v{step}, %other{step} : {wide}",
        ]
    lines += [_convert("%r", f"%v{steps}", wide, kind), f"  return %r : {kind}", "}}"]
    return _function("\n".join(lines), name)


def _keyword(attribute: Any) -> str:
    """``add`` of ``#gpu<all_reduce_op add>``."""
    return re.sub(r".*[ <](\w+)>$", r"\1", str(attribute))


_FUNCTIONS: dict[str, Callable[[Any], Function | None]] = {
    "math.ipowi": _integer_power,
    "math.isnormal": _is_normal,
    "arith.truncf": _to_float8,
    "arith.extf": _from_float8,
    "gpu.shuffle": _shuffle,
    "gpu.subgroup_reduce": _subgroup_reduce,
}

# -------------------------------------------------------------------------------------------------------------- rewrites


def _widen_block_reduction(op: Any) -> None:
    """``gpu.all_reduce`` of a narrow float in f32."""
    kind = op.results[0].type
    if str(kind) not in ("f16", "bf16") or "op" not in op.attributes:
        return
    arith, wide = dialect("arith"), ir.F32Type.get()
    with ir.InsertionPoint(op), op.location:
        op.operands[0] = arith.extf(wide, op.operands[0])
        op.results[0].set_type(wide)
    with ir.InsertionPoint.after(op), op.location:
        narrow = arith.truncf(kind, op.results[0])
        op.results[0].replace_all_uses_except(narrow, [narrow.owner.operation])


def _expand_atomic_product(op: Any) -> None:
    """``memref.atomic_rmw mulf`` as a loop of compare and exchange: there is no such instruction."""
    if _atomic_kind(op) != "mulf":
        return
    value, memref, *indices = op.operands
    with ir.InsertionPoint(op), op.location:
        generic = dialect("memref").GenericAtomicRMWOp(value.type, memref, indices)
        block = generic.regions[0].blocks.append(value.type)
        with ir.InsertionPoint(block):
            product = dialect("arith").mulf(block.arguments[0], value)
            dialect("memref").AtomicYieldOp(product)
    op.results[0].replace_all_uses_with(generic.result)
    op.erase()


def _fit_exponent(op: Any) -> None:
    """``math.fpowi`` with an exponent of 32 bits, which is what libdevice has; wider ones become floats, as in eager."""
    base, exponent = op.operands
    width = ir.IntegerType(getattr(exponent.type, "element_type", exponent.type)).width
    if width == 32:
        return
    arith = dialect("arith")
    with ir.InsertionPoint(op), op.location:
        if width < 32:
            narrow = ir.IntegerType.get_signless(32)
            kind = ir.VectorType.get(exponent.type.shape, narrow) if isinstance(exponent.type, ir.VectorType) else narrow
            op.operands[1] = arith.extsi(kind, exponent)
            return
        power = dialect("math").powf(base, arith.sitofp(base.type, exponent))
    op.results[0].replace_all_uses_with(power)
    op.erase()


def _simplify_power(op: Any) -> None:
    """``math.powf`` with an exponent that torch does not call ``pow`` for either: products, quotients and square roots.

    Not only faster: the square root of minus infinity is NaN, its power of one half is infinity.
    """
    exponent = functions_of.defining_op(op.operands[1])
    if exponent is None or exponent.name != "arith.constant" or not isinstance(op.results[0].type, ir.FloatType):
        return
    form = _POWERS.get(ir.FloatAttr(exponent.attributes["value"]).value)
    if form is not None:
        with ir.InsertionPoint(op), op.location:
            op.results[0].replace_all_uses_with(form(op.operands[0]))
        op.erase()


def _inverse(value: Any) -> Any:
    one = dialect("arith").ConstantOp(value.type, 1.0).result
    return dialect("arith").divf(one, value)


def _square(value: Any) -> Any:
    return dialect("arith").mulf(value, value)


_POWERS: dict[float, Callable[[Any], Any]] = {
    0.5: lambda x: dialect("math").sqrt(x),
    -0.5: lambda x: dialect("math").rsqrt(x),
    -1.0: _inverse,
    2.0: _square,
    3.0: lambda x: dialect("arith").mulf(_square(x), x),
    -2.0: lambda x: _inverse(_square(x)),
}


def _atomic_kind(op: Any) -> str:
    return str(dialect("arith").AtomicRMWKind(ir.IntegerAttr(op.attributes["kind"]).value))


_REWRITES: dict[str, Callable[[Any], None]] = {
    "gpu.all_reduce": _widen_block_reduction,
    "math.fpowi": _fit_exponent,
    "math.powf": _simplify_power,
    "memref.atomic_rmw": _expand_atomic_product,
}
