"""What makes an answer right: the model's outputs against eager's, one verdict per output.

Comes in: a module, its inputs, and a callable that claims to compute the same.  Goes out: shapes, dtypes, structure, NaN and
infinity patterns compared with eager as it is, and the numerical error measured against eager in higher precision, so that
eager's own rounding is known too and not mistaken for the truth.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from mlirstack.errors import UsageError

Leaf = Any  # what a model may return: a tensor, a Python scalar, None, or something that only ``==`` can compare
Tree = TypeVar("Tree")  # tensors and other leaves in nested containers
Precision = Literal["float64", "float32", "as is"]


@dataclass(frozen=True)
class Tolerance:
    """Bounds of the relative L2 error of one dtype.

    ``floor`` is always granted; ``ceiling`` is never exceeded, however badly eager itself does.
    """

    floor: float
    ceiling: float


# Unit roundoffs: f64 1.1e-16, f32 6.0e-8, f16 4.9e-4, bf16 3.9e-3.  A sum of n products may be off by about sqrt(n)
# roundoffs (Higham and Mary, 2019), 45 at n = 2048, and a deep model repeats it: 1e-5 is 170 roundoffs of f32.
# Half-precision targets accumulate in f32, so their error is one rounding per layer: four roundoffs.  f64 has no higher
# precision to compare with, so ill-conditioned models cannot be told from wrong ones: 9000 roundoffs, still far below the
# 6e-8 of a single slip into f32.
TOLERANCES: Mapping[torch.dtype, Tolerance] = {
    torch.float64: Tolerance(floor=1e-12, ceiling=1e-12),
    torch.float32: Tolerance(floor=1e-5, ceiling=1e-3),
    torch.float16: Tolerance(floor=2e-3, ceiling=3e-2),
    torch.bfloat16: Tolerance(floor=1.6e-2, ceiling=1e-1),
}
EXACT = Tolerance(0.0, 0.0)
# TF32 keeps as many bits of each factor as f16, and sums in f32.
TF32 = TOLERANCES[torch.float16]

# Another order of the same operations makes errors of the same size as eager's; four times leaves room for chance.
EAGER_FACTOR = 4.0
# One element may be further off than the whole: the largest of a million normally distributed errors is five deviations.
ELEMENT_FACTOR = 8.0


@dataclass(frozen=True)
class OutputAccuracy:
    """The verdict on one output.

    ``rel_l2`` is the relative L2 norm of the error for floats, and the rate of differing elements for everything else;
    ``eager_rel_l2`` is the error of eager itself.  ``reason`` says what is wrong, None if nothing is.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    rel_l2: float | None
    max_abs: float | None
    tolerance: float
    eager_rel_l2: float = 0.0
    reason: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the output is right."""
        return self.reason is None


@dataclass(frozen=True)
class Accuracy:
    """The verdicts on all outputs, and on the inputs that the model writes."""

    outputs: tuple[OutputAccuracy, ...]
    precision: Precision
    note: str | None = None

    @property
    def ok(self) -> bool:
        """Whether every output is right."""
        return all(output.ok for output in self.outputs)

    @property
    def worst(self) -> OutputAccuracy | None:
        """The output that is wrong, or closest to being wrong; None if the model returns nothing."""
        return max(self.outputs, key=_badness, default=None)

    @property
    def reason(self) -> str | None:
        """One line on all outputs that are wrong."""
        wrong = [f"{output.name}: {output.reason}" for output in self.outputs if not output.ok]
        return "; ".join(wrong[:3]) + (f"; and {len(wrong) - 3} more" if len(wrong) > 3 else "") if wrong else None


@dataclass(frozen=True)
class Answer:
    """What a call gave: leaves by name (``output[0]``, ``input[1] after the call``) and the structure of the output."""

    leaves: Mapping[str, Leaf]
    structure: str


@dataclass(frozen=True)
class Reference:
    """Eager's answer as it is, and in higher precision; ``note`` says why the precision is not float64."""

    eager: Answer
    precise: Answer
    precision: Precision
    note: str | None = None


def moved(tree: Tree, device: str) -> Tree:
    """The same structure of inputs, its tensors on ``device``."""
    result: Tree = pytree.tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, tree)
    return result


def call(function: Callable[..., Any], inputs: Sequence[Any]) -> Answer:
    """Call ``function`` with copies of ``inputs``, without gradients; inputs that it wrote become part of the answer."""
    given = copy.deepcopy(tuple(inputs))
    with torch.no_grad():
        result = function(*given)
    paths, structure = pytree.tree_flatten_with_path(result)
    leaves = {f"output{pytree.keystr(path)}": _detached(leaf) for path, leaf in paths}
    after, _ = pytree.tree_flatten_with_path(given)
    for (path, new), old in zip(after, pytree.tree_leaves(tuple(inputs)), strict=True):
        if isinstance(new, Tensor) and not _identical(new, old):
            leaves[f"input{pytree.keystr(path)} after the call"] = _detached(new)
    return Answer(leaves, str(structure))


def reference(
    module: nn.Module, inputs: Sequence[Any], answer: Callable[[nn.Module, Sequence[Any]], Answer] = call
) -> Reference:
    """Eager's answers; the module and the inputs are copied, never changed.  ``answer`` asks a module for one.

    Raises :class:`UsageError` where eager itself cannot run the model.
    """
    try:
        eager = answer(copy.deepcopy(module), inputs)
    except Exception as error:  # the user's own code may raise anything
        raise UsageError(f"eager cannot run the model: {type(error).__name__}: {error}") from error
    notes: list[str] = []
    precisions: tuple[tuple[Precision, torch.dtype, torch.dtype], ...] = (
        ("float64", torch.float64, torch.complex128),
        ("float32", torch.float32, torch.complex64),
    )
    for precision, real, complex_ in precisions:
        try:
            precise = answer(copy.deepcopy(module).to(real), [_cast(value, real, complex_) for value in inputs])
        except Exception as error:  # a model may insist on its dtype in any way; the note says so
            notes.append(f"eager has no {precision} for this model: {str(error).splitlines()[0][:120]}")
            continue
        return Reference(eager, precise, precision, "; ".join(notes) or None)
    return Reference(eager, eager, "as is", "; ".join(notes))


def compare_answers(got: Answer, expected: Reference, *, tf32: bool = False) -> Accuracy:
    """Compare an answer with eager's, output by output; ``tf32``: f32 was multiplied as TF32, as torch's settings allow."""
    eager = expected.eager
    if got.structure != eager.structure:
        reason = f"structure is {got.structure}, eager's is {eager.structure}"
        output = OutputAccuracy("output", "structure", None, None, None, 0.0, reason=reason)
        return Accuracy((output,), expected.precision, expected.note)
    outputs = [
        compare_leaf(name, got.leaves[name], leaf, expected.precise.leaves.get(name, leaf), tf32=tf32)
        if name in got.leaves
        else OutputAccuracy(
            name, _kind(leaf), _shape(leaf), None, None, 0.0, reason="eager writes this input, the target does not"
        )
        for name, leaf in eager.leaves.items()
    ]
    for name, leaf in got.leaves.items():
        if name not in eager.leaves:
            reason = "the target writes an input that eager leaves alone"
            outputs.append(OutputAccuracy(name, _kind(leaf), _shape(leaf), None, None, 0.0, reason=reason))
    return Accuracy(tuple(outputs), expected.precision, expected.note)


def compare_leaf(name: str, got: Leaf, eager: Leaf, precise: Leaf, *, tf32: bool = False) -> OutputAccuracy:
    """The verdict on one output, given eager's as it is and in higher precision; ``tf32`` as in :func:`compare_answers`."""
    kind, shape = _kind(eager), _shape(eager)
    if _kind(got) != kind or _shape(got) != shape:
        reason = f"is {_describe(got)}, eager gives {_describe(eager)}"
        return OutputAccuracy(name, kind, shape, None, None, 0.0, reason=reason)
    if isinstance(eager, float):
        got, eager, precise = (torch.tensor(float(value), dtype=torch.float64) for value in (got, eager, precise))
    if not isinstance(eager, Tensor):
        wrong = f"is {got!r}, eager gives {eager!r}" if got != eager else None
        return OutputAccuracy(name, kind, shape, 1.0 if wrong else 0.0, None, 0.0, reason=wrong)
    if not (eager.is_floating_point() or eager.is_complex()):
        return _compare_exactly(name, got, eager)
    if _shape(precise) != shape:  # data-dependent shapes may differ by precision
        precise = eager
    kind_of_number = eager.dtype.to_real()
    tolerance = TF32 if tf32 and kind_of_number == torch.float32 else TOLERANCES.get(kind_of_number, EXACT)
    return _compare_floats(name, got, eager, precise, tolerance)


def _compare_exactly(name: str, got: Tensor, eager: Tensor) -> OutputAccuracy:
    differing = got != eager
    count = int(differing.sum())
    rate = count / max(eager.numel(), 1)
    distance = (got[differing].double() - eager[differing].double()).abs()
    return OutputAccuracy(
        name,
        _kind(eager),
        _shape(eager),
        rel_l2=rate,
        max_abs=float(distance.max()) if count else 0.0,
        tolerance=0.0,
        reason=f"{count} of {eager.numel()} elements differ" if count else None,
    )


@dataclass(frozen=True)
class _Error:
    """Errors of finite elements: relative L2, maximum, and the worst element against itself plus the root mean square."""

    rel_l2: float
    max_abs: float
    worst_element: float


def _compare_floats(name: str, got: Tensor, eager: Tensor, precise: Tensor, tolerance: Tolerance) -> OutputAccuracy:
    got, eager64, precise = _as_real(got), _as_real(eager), _as_real(precise)
    finite = got.isfinite() & eager64.isfinite() & precise.isfinite()
    spacing = smallest_spacing(eager.dtype.to_real())
    own, error = (_error(x[finite], precise[finite], spacing) for x in (eager64, got))
    allowed = min(max(tolerance.floor, EAGER_FACTOR * own.rel_l2), tolerance.ceiling)
    allowed_element = min(
        max(ELEMENT_FACTOR * allowed, EAGER_FACTOR * own.worst_element), ELEMENT_FACTOR * tolerance.ceiling
    )
    pattern = int(_special(got).ne(_special(eager64)).sum())
    reason: str | None = None
    if pattern:
        reason = f"NaN or infinity in other places than eager: {pattern} of {got.numel()} elements"
    elif error.rel_l2 > allowed:
        reason = f"relative L2 error {error.rel_l2:.2e} exceeds {allowed:.2e}"
    elif error.worst_element > allowed_element:
        reason = f"one element is off by {error.worst_element:.2e} of its size, more than {allowed_element:.2e}"
    return OutputAccuracy(
        name, _kind(eager), _shape(eager), error.rel_l2, error.max_abs, allowed, eager_rel_l2=own.rel_l2, reason=reason
    )


def smallest_spacing(dtype: torch.dtype) -> float:
    """From zero to the smallest number of ``dtype``, which is how far apart all of its subnormal numbers are."""
    limits = torch.finfo(dtype)
    return float(limits.smallest_normal * limits.eps)


def _error(got: Tensor, precise: Tensor, spacing: float) -> _Error:
    """The error of ``got``, but for one ``spacing``: nothing in between can be stored, whatever the relative error is."""
    if not got.numel():
        return _Error(0.0, 0.0, 0.0)
    difference = ((got - precise).abs() - spacing).clamp(min=0.0)
    norm = float(torch.linalg.vector_norm(precise))
    root_mean_square = norm / math.sqrt(precise.numel())
    # Where the answer is all zeros there is nothing to be relative to: the error counts as it is.
    scale = precise.abs() + root_mean_square if norm else torch.ones_like(precise)
    return _Error(
        rel_l2=float(torch.linalg.vector_norm(difference)) / (norm or 1.0),
        max_abs=float(difference.max()),
        worst_element=float((difference / scale).max()),
    )


def _special(x: Tensor) -> Tensor:
    """0 for finite elements, 1 and -1 for infinities, 2 for NaN."""
    return torch.where(x.isnan(), 2.0, torch.where(x.isinf(), x.sign(), 0.0))


def _as_real(x: Tensor) -> Tensor:
    return torch.view_as_real(x.to(torch.complex128)) if x.is_complex() else x.double()


def _cast(value: Any, real: torch.dtype, complex_: torch.dtype) -> Any:
    def convert(leaf: Leaf) -> Leaf:
        if isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex()):
            return leaf.to(complex_ if leaf.is_complex() else real)
        return leaf

    return pytree.tree_map(convert, value)


def _detached(leaf: Leaf) -> Leaf:
    """A leaf that later calls cannot change: targets may hand out the same buffer again."""
    return leaf.detach().cpu().clone() if isinstance(leaf, Tensor) else leaf


def _identical(left: Tensor, right: Tensor) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    both_nan = left.isnan() & right.isnan()
    return bool((both_nan | (left == right)).all())


def _kind(leaf: Leaf) -> str:
    return str(leaf.dtype).removeprefix("torch.") if isinstance(leaf, Tensor) else type(leaf).__name__


def _shape(leaf: Leaf) -> tuple[int, ...] | None:
    return tuple(leaf.shape) if isinstance(leaf, Tensor) else None


def _describe(leaf: Leaf) -> str:
    return f"{_kind(leaf)}{list(leaf.shape)}" if isinstance(leaf, Tensor) else f"a {_kind(leaf)}"


def _badness(output: OutputAccuracy) -> tuple[bool, float]:
    if output.rel_l2 is None or math.isnan(output.rel_l2):
        return not output.ok, math.inf
    share = output.rel_l2 / output.tolerance if output.tolerance else math.inf if output.rel_l2 else 0.0
    return not output.ok, share
