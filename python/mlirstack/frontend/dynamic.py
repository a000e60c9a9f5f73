"""Names and ranges of dynamic dimensions, from what the user marked and what torch.export made of it.

torch.export calls them ``s77`` or ``2*s77 + 1``; the signature calls them by the name of the user's ``Dim`` (``batch``) or
by argument and axis (``x_0``).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch import nn
from torch.export import AdditionalInputs, ShapesCollection
from torch.utils import _pytree as pytree

from mlirstack.errors import UsageError
from mlirstack.frontend.program import Dim

AxisSpec = Mapping[int, Any]  # of one tensor: axis -> torch.export Dim, hint, int or None


@dataclass
class DimensionNames:
    """Names of the symbols of one exported program, found on the inputs; ``ranges`` in the order of appearance."""

    constraints: Mapping[Any, Any]  # sympy symbol -> torch ValueRanges
    names: dict[Any, str] = field(default_factory=dict)  # sympy symbol -> name
    ranges: dict[str, tuple[int, int | None]] = field(default_factory=dict)

    def observe(self, argument: str, tensor: torch.Tensor, axes: AxisSpec) -> None:
        """Name the symbols that appear as whole dimensions of one input."""
        for axis, size in enumerate(tensor.shape):
            if not isinstance(size, torch.SymInt):
                continue
            dim = axes.get(axis)
            root = getattr(dim, "root", dim)  # of a derived Dim such as 2 * batch
            symbols = size.node.expr.free_symbols
            if len(symbols) != 1:
                continue
            (symbol,) = symbols
            if symbol in self.names or (dim is None and size.node.expr != symbol):
                continue
            self._name(
                symbol, root.__name__ if isinstance(root, type(torch.export.Dim("n"))) else f"{argument}_{axis}", root
            )

    def name_scalar(self, argument: str, value: Any) -> None:
        """Name the symbol of an integer input."""
        if isinstance(value, torch.SymInt) and value.node.expr.is_Symbol:
            self._name(value.node.expr, argument, None)

    def _name(self, symbol: Any, name: str, dim: Any) -> None:
        self.names[symbol] = name
        if isinstance(dim, type(torch.export.Dim("n"))):
            self.ranges[name] = (int(dim.min), _bound(dim.max))
        else:
            found = self.constraints.get(symbol)
            low, high = (_bound(found.lower) or 0, _bound(found.upper)) if found is not None else (0, None)
            asked = getattr(dim, "min", None)
            self.ranges[name] = (low if asked is None else int(asked), high)

    def dims(self, shape: Sequence[Any]) -> tuple[Dim, ...]:
        """A shape with names (or expressions over names) in place of symbols."""
        return tuple(self._dim(size) for size in shape)

    def _dim(self, size: Any) -> Dim:
        if not isinstance(size, torch.SymInt):
            return int(size)
        expr = size.node.expr
        for symbol in sorted(expr.free_symbols, key=str):
            if symbol not in self.names:  # depends on data, e.g. the result of nonzero
                self._name(symbol, str(symbol), None)
        renamed = expr.subs({s: sympy.Symbol(n, integer=True, positive=True) for s, n in self.names.items()})
        return int(renamed) if renamed.is_Integer else str(renamed)


def _bound(value: Any) -> int | None:
    """A finite bound, or None; torch writes "unbounded" as an infinity of its own or as a very large integer."""
    if not isinstance(value, int) and not getattr(value, "is_Integer", False):
        return None
    return int(value) if abs(int(value)) < 2**62 else None


def plain_shapes(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], shapes: Any) -> Any:
    """``shapes`` written out, where it is a collection of torch.export's that knows tensors or further examples."""
    if isinstance(shapes, (ShapesCollection, AdditionalInputs)):
        collection: Any = shapes
        return collection.dynamic_shapes(model, args, dict(kwargs))
    return shapes


def leaf_axes(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], shapes: Any) -> list[AxisSpec]:
    """``shapes`` (torch.export's ``dynamic_shapes``) spread over the leaves of ``(args, kwargs)``, one entry a leaf.

    What stands in ``*args`` and ``**kwargs`` of ``forward`` has one entry together, as torch.export has it.  A shape that
    does not fit its input is left to torch.export to refuse; an axis that the input does not have is a UsageError.
    """
    try:
        bound = inspect.signature(model.forward).bind(*args, **kwargs)
    except TypeError:  # torch.export says what is wrong with the call
        return [{}] * len(pytree.tree_leaves((args, kwargs)))
    by_name = shapes if isinstance(shapes, Mapping) else dict(zip(bound.arguments, shapes or (), strict=False))
    parameters = bound.signature.parameters
    positional: list[Any] = []
    rest: Any = None
    for parameter in parameters.values():
        spec = by_name.get(parameter.name)
        if parameter.kind is parameter.VAR_POSITIONAL:
            several = list(spec) if isinstance(spec, (list, tuple)) else []
            positional += [*several, *[None] * len(args)][: len(args) - len(positional)]
        elif parameter.kind is parameter.VAR_KEYWORD:
            rest = spec
        elif len(positional) < len(args):
            positional.append(spec)
    found: list[AxisSpec] = []
    for index, (value, spec) in enumerate(zip(args, positional, strict=True)):
        found += _spread(value, spec, f"input {index}")
    for key, value in kwargs.items():
        inner = rest.get(key) if isinstance(rest, Mapping) else None
        found += _spread(value, by_name.get(key, inner), f"input '{key}'")
    return found


def _spread(value: Any, spec: Any, where: str) -> list[AxisSpec]:
    if isinstance(value, torch.Tensor) and isinstance(spec, (Mapping, list, tuple)):
        axes = dict(spec.items() if isinstance(spec, Mapping) else enumerate(spec))
        for axis in axes:
            if isinstance(axis, int) and not 0 <= axis < value.dim():
                raise UsageError(
                    f"dynamic_shapes: dimension {axis} of {where}, which has {value.dim()}",
                    hint="dimensions are counted from 0; what is given to *args of forward stands in a tuple of its own",
                )
        return [{axis: dim for axis, dim in axes.items() if _may_vary(dim)}]
    children = _children(value)
    if spec is None or children is None:
        return [{}] * len(pytree.tree_leaves(value))
    lookup = spec if isinstance(spec, Mapping) else dict(enumerate(_children(spec) or ()))
    keys = list(value) if isinstance(value, dict) else range(len(children))
    pairs = zip(keys, children, strict=True)
    return [axes for key, child in pairs for axes in _spread(child, lookup.get(key), f"{where}[{key!r}]")]


def _may_vary(dim: Any) -> bool:
    return dim is not None and not isinstance(dim, int) and bool(dim != torch.export.Dim.STATIC)


def _children(value: Any) -> list[Any] | None:
    """What a container holds, as torch flattens it; None where it is none."""
    node = pytree.SUPPORTED_NODES.get(pytree._get_node_type(value))
    return list(node.flatten_fn(value)[0]) if node is not None else None


def tile_small_axes(leaves: Sequence[Any], axes: Sequence[AxisSpec]) -> list[Any]:
    """The example inputs, dynamic axes shorter than 2 tiled to 2.

    torch.export takes sizes 0 and 1 for constants, so an example of batch 1 would contradict a dynamic batch.
    """
    tiled: list[Any] = []
    for leaf, marked in zip(leaves, axes, strict=True):
        for axis in marked:
            if isinstance(leaf, torch.Tensor) and leaf.shape[axis] < 2:
                one = leaf if leaf.shape[axis] else leaf.new_zeros([1 if a == axis else n for a, n in enumerate(leaf.shape)])
                leaf = torch.cat([one, one], dim=axis)  # noqa: PLW2901
        tiled.append(leaf)
    return tiled
