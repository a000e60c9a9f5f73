"""A loaded program as the user's callable: the model's own arguments in, the model's own outputs out.

Flattens the call, checks it against the signature, runs the executable, writes mutations back, and rebuilds what the model
returns.  Knows nothing of how the executable runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from mlirstack.errors import SignatureError
from mlirstack.frontend import trees
from mlirstack.frontend.layouts import inverse
from mlirstack.frontend.program import ArgumentSpec, Dim, Mutation, OutputSpec, Signature
from mlirstack.frontend.writes import share_memory
from mlirstack.targets.base import Executable

if TYPE_CHECKING:
    from mlirstack.lowering import Lowering

_DERIVED = re.compile(r"(?:(?P<factor>\d+)\*)?(?P<root>[A-Za-z_]\w*)(?P<offset> [+-] \d+)?")
_SCALARS: dict[str, tuple[type, ...]] = {"int64": (int,), "float64": (float, int), "bool": (bool,)}


class CompiledFunction:
    """Call it as the model is called.

    ``signature`` and ``executable`` are what it was made of; ``lowering`` holds all stages where it was compiled in this
    process.  Tensors of :attr:`parameters` are used in place, and updated where the model updates them; for a target on
    another device they are copies there.
    """

    def __init__(
        self,
        executable: Executable,
        signature: Signature,
        parameters: dict[str, torch.Tensor],
        *,
        lowering: Lowering | None = None,
        route: str | None = None,
        fallback_reason: str | None = None,
    ) -> None:
        self.executable = executable
        self.signature = signature
        self.parameters = parameters if executable.parameters is None else executable.parameters
        self._device = torch.device(executable.device)
        self.lowering = lowering
        self.route = lowering.route if lowering else route
        self.fallback_reason = fallback_reason
        if lowering and lowering.route != "tosa":
            self.fallback_reason = lowering.route_reason
        self._in_spec = trees.loads(signature.in_spec)
        self._out_spec = trees.loads(signature.out_spec)
        self._inputs = [spec for spec in signature.arguments if spec.kind == "input"]
        self._leaves = [spec.leaf for spec in self._inputs if spec.leaf is not None]
        self._leaf_count = self._in_spec.num_leaves
        # What most calls need no more than: tensors in order, of the shapes of the signature; results and nothing else.
        self._is_positional = self._in_spec == pytree.tree_structure(((0,) * self._leaf_count, {}))
        self._leaves_in_order = self._leaves == list(range(self._leaf_count))
        self._quick_checks = _quick_checks(signature, self._inputs)
        self._orders = [(at, spec.order) for at, spec in enumerate(self._inputs) if spec.order is not None]
        self._result_orders = [(at, inverse(r.order)) for at, r in enumerate(signature.results) if r.order is not None]
        self._picked = _picked_results(signature)
        self._out_is_leaf = self._out_spec.is_leaf()
        self._out_is_tuple = self._out_spec == pytree.tree_structure((0,) * self._out_spec.num_leaves)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run; raises :class:`SignatureError` where the call does not fit, naming the argument."""
        leaves, inputs = self._taken(args, kwargs)
        return self._given(leaves, self.executable.run(inputs))

    def start(self, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """As a call, up to the point where the device computes; what is returned waits for it and gives the outputs."""
        if self.signature.mutations:  # the next call reads what this one writes
            outputs = self(*args, **kwargs)
            return lambda: outputs
        leaves, inputs = self._taken(args, kwargs)
        finish = self.executable.start(inputs)
        return lambda: self._given(leaves, finish())

    def _taken(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """The leaves of a call, and of these what ``@main`` takes, checked."""
        is_flat = self._is_positional and not kwargs and len(args) == self._leaf_count
        leaves = args if is_flat else self._flatten(args, kwargs)
        if not self._fits(leaves):
            self._check(leaves)
        if self.signature.mutations:
            self._check_writes(leaves)
        inputs = leaves if self._leaves_in_order else [leaves[leaf] for leaf in self._leaves]
        if self._orders:
            inputs = list(inputs)
            for position, order in self._orders:
                inputs[position] = inputs[position].permute(order)
        return leaves, inputs

    def _given(self, leaves: Sequence[Any], results: list[Any]) -> Any:
        """What the model returns."""
        for position, order in self._result_orders:
            results[position] = results[position].permute(order)
        if self._picked is None:
            return self._outputs(leaves, results)
        if self._out_is_leaf:
            return results[self._picked[0]]
        outputs = [results[index] for index in self._picked]
        return tuple(outputs) if self._out_is_tuple else pytree.tree_unflatten(outputs, self._out_spec)

    def source(self, stage: str) -> str:
        """Text of a stage: from the lowering where there is one, else from the artifact.  KeyError if neither has it."""
        if self.lowering is not None and stage in self.lowering.pipeline.names() and stage != "object":
            return self.lowering[stage].text
        return self.executable.source(stage)

    # ------------------------------------------------------------------------------------------------------------- input

    def _flatten(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        leaves, spec = pytree.tree_flatten((args, dict(kwargs)))
        if spec == self._in_spec:
            return leaves
        ordered = trees.leaves_as(self._in_spec, (args, dict(kwargs)))
        if ordered is not None:
            return ordered
        if len(leaves) != self._in_spec.num_leaves:
            raise SignatureError(
                f"the model takes {self._in_spec.num_leaves} value(s), {len(leaves)} given",
                hint="call it as it was called for export: " + self._names(),
            )
        raise SignatureError(
            f"the arguments are nested otherwise than at export: {_spec_text(spec)}, expected {_spec_text(self._in_spec)}"
        )

    def _names(self) -> str:
        return ", ".join(spec.name for spec in self._inputs)

    def _fits(self, leaves: Sequence[Any]) -> bool:
        """The quick check: every input a tensor of the one static shape and dtype, on the right device."""
        if self._quick_checks is None:
            return False
        device = self._device
        for leaf, shape, dtype in self._quick_checks:
            value = leaves[leaf]
            fits = isinstance(value, torch.Tensor) and value.shape == shape and value.dtype is dtype
            if not fits or value.device != device:
                return False
        return True

    def _check(self, leaves: Sequence[Any]) -> None:
        """The thorough check, with messages."""
        for leaf, value in self.signature.specialized:
            given = leaves[leaf]
            if type(given) is not type(value) or repr(given) != repr(value):  # NaN is NaN, -0.0 is not 0.0
                raise SignatureError(
                    f"value {leaf} of the call is {given!r}; the program was exported for {value!r}",
                    hint="Python numbers are part of the program: pass a tensor, or compile once for each value",
                )
        sizes: dict[str, tuple[int, str]] = {}
        for spec in self._inputs:
            assert spec.leaf is not None
            self._check_one(spec, leaves[spec.leaf], sizes)

    def _check_one(self, spec: ArgumentSpec, value: Any, sizes: dict[str, tuple[int, str]]) -> None:
        if spec.shape is None:
            if not isinstance(value, _SCALARS[spec.dtype]):
                raise SignatureError(f"argument '{spec.name}' must be a Python {spec.dtype}, not {type(value).__name__}")
            return
        if not isinstance(value, torch.Tensor):
            raise SignatureError(f"argument '{spec.name}' must be a tensor, not {type(value).__name__}")
        if value.dtype != getattr(torch, spec.dtype):
            given = str(value.dtype).removeprefix("torch.")
            raise SignatureError(
                f"argument '{spec.name}' has dtype {given}, expected {spec.dtype}",
                hint=f"convert it: x.to(torch.{spec.dtype})",
            )
        if value.device != self._device:
            raise SignatureError(
                f"argument '{spec.name}' is on {value.device}, expected {self._device}",
                hint=f"move it: x.to('{self._device}')",
            )
        shape = tuple(value.shape)
        if len(shape) != len(spec.shape) or any(
            isinstance(w, int) and w != s for w, s in zip(spec.shape, shape, strict=True)
        ):
            raise SignatureError(f"argument '{spec.name}' has shape {list(shape)}, expected {_shape_text(spec.shape)}")
        for wanted, size in zip(spec.shape, shape, strict=True):
            if isinstance(wanted, str):
                self._check_dimension(spec.name, wanted, size, sizes)

    def _check_dimension(self, argument: str, dimension: str, size: int, sizes: dict[str, tuple[int, str]]) -> None:
        found = _DERIVED.fullmatch(dimension)
        root, factor, offset = dimension, 1, 0
        if found is not None:  # of a torch.export Dim such as 2*batch + 1
            root, factor, offset = found["root"], int(found["factor"] or 1), int((found["offset"] or "0").replace(" ", ""))
        of_root, rest = divmod(size - offset, factor)
        if rest:
            raise SignatureError(f"argument '{argument}': dimension '{dimension}' is {size}, which is that for no '{root}'")
        low, high = self.signature.dynamic.get(root, (0, None))
        if of_root < low or (high is not None and of_root > high):
            of = "" if root == dimension else f" of '{root}'"
            bounds = f"{low} to {high}" if high is not None else f"{low} or more"
            raise SignatureError(f"argument '{argument}': dimension '{dimension}' is {size}, allowed{of}: {bounds}")
        first, other = sizes.setdefault(root, (of_root, argument))
        if first != of_root:
            expected = f"{first}" if root == dimension else f"'{root}' is {first}"
            raise SignatureError(
                f"argument '{argument}': dimension '{dimension}' is {size}, but {expected} in argument '{other}'"
            )

    def _check_writes(self, leaves: Sequence[Any]) -> None:
        """Refuse a call whose inputs share memory with a tensor that the model writes to."""
        for mutation in self.signature.mutations:
            written = self._target(mutation, leaves)
            for spec in self._inputs:
                value = leaves[spec.leaf or 0]
                if spec.leaf != mutation.leaf and isinstance(value, torch.Tensor) and share_memory(value, written):
                    names = {s.leaf: s.name for s in self._inputs}
                    name = mutation.name if mutation.leaf is None else names[mutation.leaf]
                    raise SignatureError(
                        f"argument '{spec.name}' shares memory with '{name}', which the model writes to",
                        hint="pass a copy: x.clone()",
                    )

    def _target(self, mutation: Mutation, leaves: Sequence[Any]) -> torch.Tensor:
        target: torch.Tensor = self.parameters[str(mutation.name)] if mutation.leaf is None else leaves[mutation.leaf]
        return target

    # ------------------------------------------------------------------------------------------------------------ output

    def _outputs(self, leaves: Sequence[Any], results: Sequence[Any]) -> Any:
        """What the model returns, after what it writes to is written."""
        for mutation in self.signature.mutations:
            with torch.no_grad():
                self._target(mutation, leaves).copy_(results[mutation.index])
        outputs = [self._output(spec, leaves, results) for spec in self.signature.outputs]
        return outputs[0] if self._out_is_leaf else pytree.tree_unflatten(outputs, self._out_spec)

    def _output(self, spec: OutputSpec, leaves: Sequence[Any], results: Sequence[Any]) -> Any:
        if spec.kind == "result":
            return results[spec.index or 0]
        if spec.kind == "input":
            return leaves[spec.index or 0]
        return self.parameters[str(spec.name)] if spec.kind == "parameter" else spec.value


_QuickCheck = tuple[int, torch.Size, torch.dtype]


def _quick_checks(signature: Signature, inputs: Sequence[ArgumentSpec]) -> list[_QuickCheck] | None:
    """Leaf, shape and dtype of each input, or None where a call needs the thorough check."""
    checks: list[_QuickCheck] = []
    for spec in inputs:
        sizes = [size for size in spec.shape or () if isinstance(size, int)]
        if spec.shape is None or len(sizes) < len(spec.shape) or spec.leaf is None:
            return None
        checks.append((spec.leaf, torch.Size(sizes), getattr(torch, spec.dtype)))
    return None if signature.specialized else checks


def _picked_results(signature: Signature) -> list[int] | None:
    """The numbers of the results that the model returns, or None where it returns or writes something else."""
    only_results = not signature.mutations and all(output.kind == "result" for output in signature.outputs)
    return [output.index or 0 for output in signature.outputs] if only_results else None


def _shape_text(shape: Sequence[Dim]) -> str:
    return "[" + ", ".join(str(size) for size in shape) + "]"


def _spec_text(spec: pytree.TreeSpec) -> str:
    text = str(pytree.tree_unflatten(["*"] * spec.num_leaves, spec))
    return text if len(text) < 200 else text[:200] + "…"
