"""A loaded program as a callable of NumPy arrays.

It is for arrays what :class:`~mlirstack.targets.callable.CompiledFunction` is for tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mlirstack.bundle.parameters import numpy_dtype
from mlirstack.bundle.trees import flatten, parse, unflatten
from mlirstack.errors import SignatureError
from mlirstack.frontend.program import ArgumentSpec, OutputSpec, Signature
from mlirstack.targets.base import ArrayExecutable

_NUMBERS: dict[str, tuple[type, ...]] = {"int64": (int,), "float64": (float, int), "bool": (bool,)}


class ArrayFunction:
    """Call it as the model is called, with arrays; arrays come back."""

    def __init__(self, executable: ArrayExecutable, signature: Signature, parameters: Mapping[str, np.ndarray]) -> None:
        self.executable, self.signature, self.parameters = executable, signature, parameters
        self._in, self._out = parse(signature.in_spec), parse(signature.out_spec)
        self._inputs = [spec for spec in signature.arguments if spec.kind == "input" and spec.leaf is not None]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run; raises :class:`SignatureError` where the call does not fit, naming the argument."""
        leaves = flatten(self._in, (args, kwargs))
        for leaf, value in self.signature.specialized:
            if type(leaves[leaf]) is not type(value) or leaves[leaf] != value:
                raise SignatureError(f"value {leaf} of the call is {leaves[leaf]!r}; the program was exported for {value!r}")
        sizes: dict[str, int] = {}
        for spec in self._inputs:
            self._check(spec, leaves[spec.leaf or 0], sizes)
        results = self.executable.run([_stored(leaves[spec.leaf or 0], spec.order) for spec in self._inputs])
        orders = [result.order for result in self.signature.results]
        results = [_seen(result, order) for result, order in zip(results, orders, strict=True)]
        for mutation in self.signature.mutations:
            target = leaves[mutation.leaf] if mutation.leaf is not None else self.parameters[str(mutation.name)]
            target[...] = results[mutation.index]
        return unflatten(self._out, iter([self._output(spec, leaves, results) for spec in self.signature.outputs]))

    def _check(self, spec: ArgumentSpec, value: Any, sizes: dict[str, int]) -> None:
        if spec.shape is None:
            if not isinstance(value, _NUMBERS[spec.dtype]):
                raise SignatureError(f"argument '{spec.name}' must be a Python {spec.dtype}, not {type(value).__name__}")
            return
        if not isinstance(value, np.ndarray):
            raise SignatureError(f"argument '{spec.name}' must be an array, not {type(value).__name__}")
        if value.dtype != numpy_dtype(spec.dtype):
            raise SignatureError(f"argument '{spec.name}' has dtype {value.dtype}, expected {spec.dtype}")
        if len(value.shape) != len(spec.shape):
            raise SignatureError(f"argument '{spec.name}' has shape {list(value.shape)}, expected {list(spec.shape)}")
        for wanted, size in zip(spec.shape, value.shape, strict=True):
            low, high = (wanted, wanted) if isinstance(wanted, int) else self.signature.dynamic.get(wanted, (0, None))
            if size < low or (high is not None and size > high):
                raise SignatureError(f"argument '{spec.name}' has shape {list(value.shape)}, expected {list(spec.shape)}")
            if isinstance(wanted, str) and sizes.setdefault(wanted, size) != size:
                raise SignatureError(f"argument '{spec.name}': dimension '{wanted}' is {size}, but {sizes[wanted]} before")

    def _output(self, spec: OutputSpec, leaves: list[Any], results: list[Any]) -> Any:
        if spec.kind == "result":
            return results[spec.index or 0]
        if spec.kind == "input":
            return leaves[spec.index or 0]
        return self.parameters[str(spec.name)] if spec.kind == "parameter" else spec.value


def _stored(value: Any, order: tuple[int, ...] | None) -> Any:
    """An input as the program takes it: its dimensions in the order that they have in memory."""
    return value if order is None else value.transpose(order)


def _seen(value: Any, order: tuple[int, ...] | None) -> Any:
    """A result as the model gives it; inverse of :func:`_stored`."""
    return value if order is None else value.transpose(np.argsort(order))
