"""Golden answers of a model: eager called with the example inputs, and at another size of each dynamic dimension.

Answers come with the tolerances that ``compare`` would grant, which depend on how far eager itself is from the same model in
float64.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from mlirstack.bundle.golden import (
    OF_CPU,
    SMALL_BYTES,
    Drawn,
    Golden,
    GoldenCase,
    GoldenInput,
    GoldenOutput,
    draw,
    errors,
    sample_positions,
    to_stored,
)
from mlirstack.bundle.torch_arrays import array_of, tensor_of
from mlirstack.compare.accuracy import EAGER_FACTOR, ELEMENT_FACTOR, TF32, TOLERANCES, Tolerance, compare_leaf
from mlirstack.compare.bisect.subject import drawn_inputs
from mlirstack.errors import MlirstackError, UsageError
from mlirstack.frontend.program import Program, Signature
from mlirstack.lowering import LowerOptions, build_program
from mlirstack.targets.callable import CompiledFunction

PRECISE_LIMIT = 256 << 20  # bytes of parameters; larger models are not copied to float64

Leaves = list[Any]


def golden_of(
    model: Callable[..., Any], inputs: Sequence[Any], kwargs: Mapping[str, Any], signature: Signature, *, seed: int = 0
) -> Golden:
    """Run ``model`` on the CPU; neither it nor the inputs are changed.

    Large floating-point inputs are replaced by ones that a seed draws with the same mean and deviation.  Raises
    :class:`UsageError` where eager cannot run the model.
    """
    leaves, structure = pytree.tree_flatten((tuple(inputs), dict(kwargs)))
    example, drawn = _redrawn(leaves, seed)
    cases: list[tuple[str, Leaves, Mapping[int, Drawn]]] = [("example", example, drawn)]
    sizes = other_sizes(leaves, signature)
    if sizes:
        name = ", ".join(f"{dimension}={size}" for dimension, size in sizes.items())
        cases.append((name, _resized(example, signature, sizes), {}))
    precise_model = _precise(model)
    precision = "as is" if precise_model is None else "float64"
    arrays: dict[str, np.ndarray] = {}
    described = []
    for number, (name, values, from_seed) in enumerate(cases):
        eager = _call(model, values, structure)
        try:
            precise = eager if precise_model is None else _call(precise_model, [_wide(v) for v in values], structure)
        except UsageError:  # the model insists on its dtype
            precise, precision = eager, "as is"
        outputs = []
        for at, (what, position, after) in enumerate(_compared(eager, signature)):
            e, p = (answers[1 if after else 0][position] for answers in (eager, precise))
            outputs.append(_output(what, position, e, p, arrays, f"{number}", at, after=after))
        described.append(GoldenCase(name, _inputs(values, from_seed, arrays, number), tuple(outputs)))
    return Golden(precision, tuple(described), arrays)


def golden_of_program(program: Program, *, seed: int = 0) -> Golden:
    """Answers of a program that was read from a file and has no eager: target ``cpu`` gives them, on inputs that are drawn.

    Where that target cannot compile or run it, there are none, and the reason in their place.
    """
    try:
        lowering, artifact, _ = build_program(program, LowerOptions("cpu", explain=False))
        executable = lowering.target.load(artifact, program.signature, program.parameters)
        function = CompiledFunction(executable, program.signature, program.parameters)
        golden = golden_of(function, drawn_inputs(program.signature, seed), {}, program.signature, seed=seed)
    except MlirstackError as error:
        return Golden(OF_CPU, (), {}, f"target cpu, whose answers they would be: {error.message}")
    return replace(golden, precision=OF_CPU)


def other_sizes(leaves: Leaves, signature: Signature) -> dict[str, int]:
    """For each dynamic dimension another size within its range than the example's: the least, else twice as much.

    Empty where one dimension is computed from another, or where the model changes its buffers from call to call.
    """
    now: dict[str, int] = {}
    for spec in signature.arguments:
        if spec.kind == "input" and spec.leaf is not None and spec.shape is not None:
            now |= {d: leaves[spec.leaf].shape[i] for i, d in enumerate(spec.shape) if isinstance(d, str)}
    if any(m.name for m in signature.mutations) or not set(now) <= set(signature.dynamic):
        return {}
    sizes = {}
    for name, size in now.items():
        low, high = signature.dynamic.get(name, (1, None))
        least = max(low, 1)
        sizes[name] = least if least != size else size if high is not None and high < 2 * size else 2 * size
    return sizes


# ------------------------------------------------------------------------------------------------------------------ inputs


def _redrawn(leaves: Leaves, seed: int) -> tuple[Leaves, dict[int, Drawn]]:
    values: Leaves = []
    drawn: dict[int, Drawn] = {}
    for position, leaf in enumerate(leaves):
        is_large = isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.nbytes > SMALL_BYTES
        if not is_large:
            values.append(leaf.detach().cpu().clone() if isinstance(leaf, torch.Tensor) else leaf)
            continue
        part = leaf.reshape(-1)[:SMALL_BYTES].double()
        drawn[position] = Drawn(seed * 1000 + position + 1, float(part.mean()), float(part.std()))
        values.append(tensor_of(draw(drawn[position], leaf.shape, str(leaf.dtype).removeprefix("torch."))))
    return values, drawn


def _resized(leaves: Leaves, signature: Signature, sizes: Mapping[str, int]) -> Leaves:
    """The inputs repeated or cut along their dynamic dimensions: every value stays one that the model has been given."""
    values = list(leaves)
    for spec in signature.arguments:
        if spec.kind != "input" or spec.leaf is None or spec.shape is None:
            continue
        for axis, dimension in enumerate(spec.shape):
            if isinstance(dimension, str):
                tensor = values[spec.leaf]
                values[spec.leaf] = tensor.index_select(axis, torch.arange(sizes[dimension]) % tensor.shape[axis])
    return values


def _inputs(
    values: Leaves, drawn: Mapping[int, Drawn], arrays: dict[str, np.ndarray], case: int
) -> tuple[GoldenInput, ...]:  # fmt: skip
    described = []
    for position, leaf in enumerate(values):
        if not isinstance(leaf, torch.Tensor):
            described.append(GoldenInput(value=leaf))
            continue
        dtype = str(leaf.dtype).removeprefix("torch.")
        described.append(GoldenInput(dtype, tuple(leaf.shape), drawn.get(position)))
        if position not in drawn:
            arrays[f"{case}/input/{position}"] = to_stored(np.ascontiguousarray(array_of(leaf)), dtype)
    return tuple(described)


# ----------------------------------------------------------------------------------------------------------------- answers


def _call(model: Callable[..., Any], leaves: Leaves, structure: pytree.TreeSpec) -> tuple[Leaves, Leaves]:
    """The leaves of the output, and those of the inputs after the call."""
    module = copy.deepcopy(model) if isinstance(model, nn.Module) and any(True for _ in model.buffers()) else model
    args, kwargs = pytree.tree_unflatten([_copied(leaf) for leaf in leaves], structure)
    with torch.no_grad():
        try:
            output = module(*args, **kwargs)
        except Exception as error:  # the user's own code may raise anything
            raise UsageError(f"eager cannot run the model: {type(error).__name__}: {error}") from error
    return pytree.tree_leaves(output), pytree.tree_leaves((args, kwargs))


def _precise(model: Callable[..., Any]) -> nn.Module | None:
    """The model in float64, or None where it is too large or no module."""
    if not isinstance(model, nn.Module):
        return None
    size = sum(p.nbytes for p in (*model.parameters(), *model.buffers()))
    return copy.deepcopy(model).to(torch.float64) if size <= PRECISE_LIMIT else None


def _wide(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex()):
        return leaf.to(torch.complex128 if leaf.is_complex() else torch.float64)
    return leaf


def _compared(eager: tuple[Leaves, Leaves], signature: Signature) -> list[tuple[str, int, bool]]:
    """Name, position, and whether it is an input after the call, of everything that is compared."""
    compared = [(f"output[{i}]", i, False) for i in range(len(eager[0]))]
    return compared + [(f"input[{m.leaf}] after the call", m.leaf, True) for m in signature.mutations if m.leaf is not None]


def _output(
    name: str, position: int, eager: Any, precise: Any, arrays: dict[str, np.ndarray], case: str, at: int, *, after: bool
) -> GoldenOutput:
    if not isinstance(eager, torch.Tensor):
        tolerance = TOLERANCES[torch.float64].floor if isinstance(eager, float) else 0.0
        return GoldenOutput(name, position, after, tolerance=tolerance, value=eager)
    dtype = str(eager.dtype).removeprefix("torch.")
    described = GoldenOutput(name, position, after, dtype, tuple(eager.shape), sampled=eager.nbytes > SMALL_BYTES)
    if described.sampled:
        positions = torch.from_numpy(sample_positions(eager.numel()))
        eager, precise = (tensor.reshape(-1)[positions] for tensor in (eager, precise))
    arrays[f"{case}/eager/{at}"] = to_stored(np.ascontiguousarray(array_of(eager)), dtype)
    if not (eager.is_floating_point() or eager.is_complex()):
        return described
    is_double = eager.dtype.to_real() is torch.float64
    real, complex_ = (torch.float64, torch.complex128) if is_double else (torch.float32, torch.complex64)
    arrays[f"{case}/precise/{at}"] = array_of(precise.to(complex_ if eager.is_complex() else real))
    return _with_tolerances(described, eager, precise)


def _with_tolerances(output: GoldenOutput, eager: torch.Tensor, precise: torch.Tensor) -> GoldenOutput:
    """What ``compare`` allows for this dtype, given how far eager itself is off."""
    verdict = compare_leaf(output.name, eager, eager, precise)
    tf32 = compare_leaf(output.name, eager, eager, precise, tf32=True)
    real = eager.dtype.to_real()
    wide, exact = (torch.view_as_real(t.to(torch.complex128)) if t.is_complex() else t.double() for t in (eager, precise))
    finite = wide.isfinite() & exact.isfinite()
    _, _, worst = errors(wide[finite].numpy(), exact[finite].numpy())

    def element(allowed: float, tolerance: Tolerance) -> float:
        return min(max(ELEMENT_FACTOR * allowed, EAGER_FACTOR * worst), ELEMENT_FACTOR * tolerance.ceiling)

    own = TOLERANCES.get(real, Tolerance(0.0, 0.0))
    return replace(
        output,
        tolerance=verdict.tolerance,
        element_tolerance=element(verdict.tolerance, own),
        tf32_tolerance=tf32.tolerance,
        tf32_element_tolerance=element(tf32.tolerance, TF32 if real is torch.float32 else own),
        eager_rel_l2=verdict.eager_rel_l2,
    )


def _copied(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf
