"""Smaller shapes: every static size of a module, in types and in the attributes that speak of sizes, replaced at once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.ops import walk

Sizes = Mapping[int, int]

_TORCH = re.compile(r"(!torch\.v?tensor<\[)([\d,?]*)(\])")


def dimensions(module: Any) -> list[int]:
    """The static sizes above 1 of all tensors, memrefs and vectors, largest first."""
    found: Counter[int] = Counter()
    for op in walk(module):
        for kind in _types(op):
            found.update(_sizes(kind))
    return sorted((size for size in found if size > 1), reverse=True)


def _types(op: Any) -> list[Any]:
    types = [value.type for value in (*op.results, *op.operands)]
    for region in op.regions:
        types += [argument.type for block in region.blocks for argument in block.arguments]
    return types


def _sizes(kind: Any) -> list[int]:
    if isinstance(kind, ir.ShapedType) and kind.has_rank:
        return [kind.get_dim_size(i) for i in range(kind.rank) if not kind.is_dynamic_dim(i)]
    found = _TORCH.search(str(kind))
    return [int(size) for size in found[2].split(",") if size.isdigit()] if found else []


def resize(module: Any, sizes: Sizes) -> None:
    """Replace sizes everywhere; what then does not fit together is for the verifier to find."""
    for op in walk(module):
        for value in op.results:
            value.set_type(_resized(value.type, sizes))
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    argument.set_type(_resized(argument.type, sizes))
        for name in list(op.attributes):
            old = op.attributes[name]
            new = _resized_attribute(old, sizes)
            if new != old:
                op.attributes[name] = new


def _resized(kind: Any, sizes: Sizes) -> Any:
    if isinstance(kind, ir.FunctionType):
        return ir.FunctionType.get([_resized(t, sizes) for t in kind.inputs], [_resized(t, sizes) for t in kind.results])
    if isinstance(kind, ir.ShapedType) and kind.has_rank:
        dynamic = ir.ShapedType.get_dynamic_size()
        old = [dynamic if kind.is_dynamic_dim(i) else kind.get_dim_size(i) for i in range(kind.rank)]
        new = [size if size == dynamic else sizes.get(size, size) for size in old]
        if new == old:
            return kind
        if isinstance(kind, ir.RankedTensorType):
            return ir.RankedTensorType.get(new, kind.element_type, kind.encoding)
        if isinstance(kind, ir.MemRefType):
            return ir.MemRefType.get(new, kind.element_type, memory_space=kind.memory_space)
        if isinstance(kind, ir.VectorType):
            return ir.VectorType.get(new, kind.element_type)
    text = str(kind)
    if "!torch." in text:
        return ir.Type.parse(_TORCH.sub(lambda m: m[1] + _resized_list(m[2], sizes) + m[3], text))
    return kind


def _resized_list(text: str, sizes: Sizes) -> str:
    return ",".join(str(sizes.get(int(size), size)) if size.isdigit() else size for size in text.split(","))


def _resized_attribute(attribute: Any, sizes: Sizes) -> Any:
    if isinstance(attribute, ir.TypeAttr):
        return ir.TypeAttr.get(_resized(attribute.value, sizes))
    if isinstance(attribute, ir.DenseI64ArrayAttr):
        return ir.DenseI64ArrayAttr.get([sizes.get(value, value) for value in attribute])
    if isinstance(attribute, ir.DenseElementsAttr):
        return _resized_elements(attribute, sizes)
    if isinstance(attribute, ir.IntegerAttr) and isinstance(attribute.type, (ir.IntegerType, ir.IndexType)):
        wide = isinstance(attribute.type, ir.IndexType) or attribute.type.width == 64
        return ir.IntegerAttr.get(attribute.type, sizes.get(attribute.value, attribute.value)) if wide else attribute
    return attribute


def _resized_elements(attribute: Any, sizes: Sizes) -> Any:
    """Constants that are sizes themselves (of a reshape), or that have another size now: these become splats."""
    kind = _resized(attribute.type, sizes)
    element = attribute.type.element_type
    if isinstance(element, ir.IndexType) or str(element) == "i64":
        values = [int(value) for value in attribute]
        if kind == attribute.type:
            scaled = [sizes.get(value, value) for value in values]
            return ir.Attribute.parse(f"dense<{scaled}> : {kind}") if len(scaled) > 1 else attribute
        return ir.Attribute.parse(f"dense<{sizes.get(values[0], values[0])}> : {kind}")
    return attribute if kind == attribute.type else _splat(attribute, kind)


def _splat(attribute: Any, kind: Any) -> Any:
    first = ir.DenseElementsAttr(attribute).get_splat_value() if attribute.is_splat else None
    if first is None:
        element = kind.element_type
        floating = not isinstance(element, (ir.IntegerType, ir.IndexType))
        first = ir.FloatAttr.get(element, 1.0) if floating else ir.IntegerAttr.get(element, 0)
    return ir.DenseElementsAttr.get_splat(kind, first)


def simplify_constant(op: Any) -> None:
    """One value in the place of many, 0 or 1 in the place of others."""
    for name in ("value", "values"):
        if name not in op.attributes:
            continue
        old = op.attributes[name]
        if isinstance(old, ir.DenseElementsAttr):
            if not old.is_splat:
                op.attributes[name] = _splat(old, old.type)
        elif isinstance(old, ir.IntegerAttr):
            op.attributes[name] = ir.IntegerAttr.get(old.type, 0)
        elif isinstance(old, ir.FloatAttr):
            op.attributes[name] = ir.FloatAttr.get(old.type, 1.0)
