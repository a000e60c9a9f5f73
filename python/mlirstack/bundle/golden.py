"""Golden answers: inputs and what eager answered, in one .npz file, compared with what a bundle gives on another machine.

Small tensors are stored.  Large inputs are drawn again from a seed, bit for bit the same everywhere; of large outputs a
fixed sample of the elements is stored.  NumPy is all that comparing takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mlirstack.bundle.parameters import numpy_dtype
from mlirstack.errors import BundleError

SAMPLES = 65536  # elements that are kept of an output that is too large to keep whole
SMALL_BYTES = 1 << 20  # tensors up to this size are stored as they are
OF_CPU = "target cpu"  # the precision of answers of a program that has no eager


@dataclass(frozen=True)
class Drawn:
    """How a large input is drawn: uniformly distributed with this mean and standard deviation, from ``seed``."""

    seed: int
    mean: float
    deviation: float


@dataclass(frozen=True)
class GoldenInput:
    """One leaf of the inputs, in flattened order.

    A tensor has a dtype (torch's name) and a shape, and is stored or ``drawn``; anything else is ``value`` itself.
    """

    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    drawn: Drawn | None = None
    value: int | float | bool | str | None = None


@dataclass(frozen=True)
class GoldenOutput:
    """One leaf that is compared: of the output, or of the inputs after the call (``after_call``), at ``position``.

    ``tolerance`` bounds the relative L2 error against the answer in higher precision, ``element_tolerance`` that of one
    element against its size plus the root mean square; the ``tf32`` ones hold where f32 is multiplied as TF32.  Integers and
    booleans must be equal.  ``sampled``: only some elements are kept.  ``eager_rel_l2`` is the error of eager itself.
    """

    name: str
    position: int
    after_call: bool = False
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    sampled: bool = False
    tolerance: float = 0.0
    element_tolerance: float = 0.0
    tf32_tolerance: float = 0.0
    tf32_element_tolerance: float = 0.0
    eager_rel_l2: float = 0.0
    value: int | float | bool | str | None = None


@dataclass(frozen=True)
class GoldenCase:
    """One call: its inputs, and what came out."""

    name: str
    inputs: tuple[GoldenInput, ...]
    outputs: tuple[GoldenOutput, ...]


@dataclass(frozen=True)
class Golden:
    """Cases with their arrays.

    ``precision`` is that of the answers that errors are measured against; ``problem`` says why there are no cases.  Arrays
    are named ``0/input/1`` (case, leaf), ``0/eager/0`` and ``0/precise/0`` (case, output), in NumPy's dtypes, bfloat16 as
    its bits.
    """

    precision: str
    cases: tuple[GoldenCase, ...]
    arrays: Mapping[str, np.ndarray]
    problem: str | None = None
    _drawn: dict[tuple[int, int], np.ndarray] = field(default_factory=dict, compare=False, repr=False)

    def inputs(self, case: int) -> list[Any]:
        """The leaves of a case's inputs: arrays (bfloat16 of ml_dtypes), numbers, None; a caller's own to write to."""
        return [self._input(case, i, leaf) for i, leaf in enumerate(self.cases[case].inputs)]

    def _input(self, case: int, position: int, leaf: GoldenInput) -> Any:
        if leaf.dtype is None or leaf.shape is None:
            return leaf.value
        if leaf.drawn is None:
            return from_stored(self.arrays[f"{case}/input/{position}"], leaf.dtype).copy()
        if (case, position) not in self._drawn:  # drawing takes ten times as long as copying
            self._drawn[case, position] = draw(leaf.drawn, leaf.shape, leaf.dtype)
        return self._drawn[case, position].copy()


@dataclass(frozen=True)
class Comparison:
    """What one output was found to be: ``reason`` says what is wrong, None if nothing is."""

    name: str
    rel_l2: float
    max_abs: float
    tolerance: float
    reason: str | None = None


def write_golden(golden: Golden, file: Path) -> dict[str, Any]:
    """Write the arrays; returns what the manifest says of them.  May raise OSError."""
    np.savez_compressed(file, allow_pickle=False, **dict(golden.arrays))
    cases = [asdict(case) for case in golden.cases]
    return {"precision": golden.precision, "cases": cases, "problem": golden.problem}


def read_golden(file: Path, description: dict[str, Any]) -> Golden:
    """What :func:`write_golden` wrote; :class:`BundleError` where it cannot be read."""
    try:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        cases = tuple(_case(case) for case in description["cases"])
        return Golden(description["precision"], cases, arrays, description.get("problem"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BundleError(f"{file.name} cannot be read: {error}", hint="build the bundle again") from error


def _case(data: dict[str, Any]) -> GoldenCase:
    def shaped(entry: dict[str, Any]) -> dict[str, Any]:
        return {**entry, "shape": None if entry["shape"] is None else tuple(entry["shape"])}

    inputs = (
        GoldenInput(**{**shaped(entry), "drawn": Drawn(**entry["drawn"]) if entry["drawn"] else None})
        for entry in data["inputs"]
    )
    return GoldenCase(data["name"], tuple(inputs), tuple(GoldenOutput(**shaped(entry)) for entry in data["outputs"]))


# ------------------------------------------------------------------------------------------------------------------ arrays


def draw(drawn: Drawn, shape: Sequence[int], dtype: str) -> np.ndarray:
    """The array that ``drawn`` stands for.

    Made of the raw bits of the Philox counter generator, whose stream NumPy guarantees, by IEEE operations only.
    """
    count = math.prod(shape)
    bits = np.random.Philox(key=drawn.seed)
    flat = np.empty(count, numpy_dtype(dtype))
    width = np.float32(drawn.deviation * math.sqrt(12.0))
    step = 1 << 22  # elements at a time: the raw bits take eight bytes each
    for first in range(0, count, step):
        raw = bits.random_raw(min(step, count - first))
        uniform = (raw >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)
        flat[first : first + step] = (uniform - np.float32(0.5)) * width + np.float32(drawn.mean)
    return flat.reshape(shape)


def sample(flat: np.ndarray) -> np.ndarray:
    """The elements that are kept of a large output: spread over all of it, in every row and column sooner or later."""
    return flat[sample_positions(flat.size)]


def sample_positions(count: int) -> np.ndarray:
    """Flat positions of the sample of an output of ``count`` elements: steps near the golden section, free of patterns."""
    step = int(count * 0.6180339887498949) | 1
    while math.gcd(step, count) != 1:
        step += 2
    return (np.arange(SAMPLES, dtype=np.uint64) * np.uint64(step) % np.uint64(count)).astype(np.int64)


def to_stored(array: np.ndarray, dtype: str) -> np.ndarray:
    """As .npz can hold it: bfloat16 and float8 as their bits."""
    return array.view(f"u{array.dtype.itemsize}") if dtype.startswith(("bfloat16", "float8")) else array


def from_stored(array: np.ndarray, dtype: str) -> np.ndarray:
    """The inverse of :func:`to_stored`."""
    return array.view(numpy_dtype(dtype)) if array.dtype != numpy_dtype(dtype) else array


# --------------------------------------------------------------------------------------------------------------- comparing


def compare(golden: Golden, case: int, number: int, got: Any, *, tf32: bool = False) -> Comparison:
    """Compare ``got`` (an array or a number) with output ``number`` of a case."""
    output = golden.cases[case].outputs[number]
    if output.dtype is None or output.shape is None:
        return _compare_number(output, got)
    if not isinstance(got, np.ndarray):
        return _wrong(output, f"is {type(got).__name__}, eager gives {output.dtype}{list(output.shape)}")
    if got.dtype != numpy_dtype(output.dtype) or got.shape != output.shape:
        return _wrong(output, f"is {got.dtype}{list(got.shape)}, eager gives {output.dtype}{list(output.shape)}")
    flat = got.reshape(-1)
    kept = sample(flat) if output.sampled else flat
    eager = from_stored(golden.arrays[f"{case}/eager/{number}"], output.dtype).reshape(-1)
    if not _is_float(output.dtype):
        differing = int(np.count_nonzero(kept != eager))
        reason = f"{differing} of {eager.size} elements differ" if differing else None
        return Comparison(output.name, differing / max(eager.size, 1), 0.0, 0.0, reason)
    precise = golden.arrays[f"{case}/precise/{number}"].reshape(-1)
    return _compare_floats(output, kept, eager, precise, tf32=tf32)


def _compare_floats(
    output: GoldenOutput, got: np.ndarray, eager: np.ndarray, precise: np.ndarray, *, tf32: bool
) -> Comparison:
    allowed = output.tf32_tolerance if tf32 else output.tolerance
    allowed_element = output.tf32_element_tolerance if tf32 else output.element_tolerance
    wide, eager_wide, precise = _wide(got), _wide(eager), _wide(precise)
    pattern = int(np.count_nonzero(_special(wide) != _special(eager_wide)))
    finite = np.isfinite(wide) & np.isfinite(eager_wide) & np.isfinite(precise)
    rel_l2, max_abs, worst = errors(wide[finite], precise[finite])
    reason = None
    if pattern:
        reason = f"NaN or infinity in other places than eager: {pattern} of {got.size} elements"
    elif rel_l2 > allowed:
        reason = f"relative L2 error {rel_l2:.2e} exceeds {allowed:.2e}"
    elif worst > allowed_element:
        reason = f"one element is off by {worst:.2e} of its size, more than {allowed_element:.2e}"
    return Comparison(output.name, rel_l2, max_abs, allowed, reason)


def errors(got: np.ndarray, precise: np.ndarray) -> tuple[float, float, float]:
    """Of float64 arrays: relative L2, largest absolute, worst element against its size plus the root mean square."""
    if not got.size:
        return 0.0, 0.0, 0.0
    difference = np.abs(got - precise)
    norm = float(np.linalg.norm(precise))
    # Where the answer is all zeros there is nothing to be relative to: the error counts as it is.
    scale = np.abs(precise) + norm / math.sqrt(precise.size) if norm else np.ones_like(difference)
    return float(np.linalg.norm(difference)) / (norm or 1.0), float(difference.max()), float((difference / scale).max())


def _compare_number(output: GoldenOutput, got: Any) -> Comparison:
    expected = output.value
    if isinstance(expected, float) and isinstance(got, float):
        error = 0.0 if got == expected or (math.isnan(got) and math.isnan(expected)) else abs(got - expected)
        relative = error / (abs(expected) or 1.0)
        reason = None if relative <= output.tolerance else f"is {got!r}, eager gives {expected!r}"
        return Comparison(output.name, relative, error, output.tolerance, reason)
    same = type(got) is type(expected) and got == expected
    return Comparison(output.name, 0.0 if same else 1.0, 0.0, 0.0, None if same else f"is {got!r}, eager gives {expected!r}")


def _wrong(output: GoldenOutput, reason: str) -> Comparison:
    return Comparison(output.name, math.inf, math.inf, output.tolerance, reason)


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex"))


def _wide(array: np.ndarray) -> np.ndarray:
    """In float64; complex numbers as pairs."""
    if array.dtype.kind == "c":
        return np.ascontiguousarray(array.astype(np.complex128)).view(np.float64)
    return array.astype(np.float64)


def _special(array: np.ndarray) -> np.ndarray:
    """0 for finite elements, 1 and -1 for infinities, 2 for NaN."""
    return np.where(np.isnan(array), 2, np.where(np.isinf(array), np.sign(array), 0))
