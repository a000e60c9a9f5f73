"""The process that runs candidates on the GPU: right answers first, then times.  Needs no MLIR.

A question names the directory of a problem, the numbers of its candidates and the seconds to spend on each; the answer has
``seconds`` per call of the right candidates and the reasons against the others, ``failed``.  Whatever may have damaged the
GPU's context ends the process; the step that it told of last names the candidate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from mlirstack.bundle.store import Bundle, read_bundle
from mlirstack.compare.accuracy import compare_leaf
from mlirstack.compare.device_timing import poison_memory, rotations, time_on_device
from mlirstack.errors import BundleError, TargetUnavailableError
from mlirstack.frontend.program import ArgumentSpec, Signature
from mlirstack.supervised import Tell, serve
from mlirstack.targets.callable import CompiledFunction
from mlirstack.targets.registry import create_target

Values = tuple[Any, ...]
Function = CompiledFunction

_FAR_BEHIND = 1.5  # times the fastest: not worth measuring closely …
_HOST_SECONDS = 1e-4  # … unless the host may have been the slow one
_FEW_CALLS = 3


def answer(question: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Check and time candidates of one problem; see the top of this module."""
    directory = Path(question["directory"])
    numbers: list[int] = question["candidates"]
    functions: dict[int, Function] = {}
    failed: dict[int, str] = {}
    bundles = {number: read_bundle(directory / str(number)) for number in numbers}
    data = input_sets(bundles[numbers[0]].signature, "cuda")
    outputs: dict[int, list[Any]] = {}
    rough: dict[int, float] = {}
    with torch.no_grad():
        for number, bundle in bundles.items():
            tell({"candidate": number})
            try:
                functions[number] = _load(bundle)
            except (BundleError, TargetUnavailableError) as error:
                failed[number] = error.message
                continue
            poison_memory(_bytes(data[0]))
            outputs[number] = pytree.tree_leaves(functions[number](*data[0]))
            torch.cuda.synchronize()
            rough[number] = _rough_seconds(functions[number], data[0])
        failed |= disagreeing(outputs, tf32=any(function.executable.tf32 for function in functions.values()))
        outputs.clear()
        seconds = {number: time for number, time in rough.items() if number not in failed}
        tell({"timing": sorted(seconds)})
        seconds |= _closely(functions, seconds, data, question["seconds"])
    return {"seconds": seconds, "failed": failed}


def disagreeing(outputs: Mapping[int, Sequence[Any]], *, tf32: bool = False) -> dict[int, str]:
    """Candidates whose answer is not that of most, with the reason; of as many, the first one is believed.

    ``tf32``: some multiply f32 as TF32.
    """
    if not outputs:
        return {}
    believed, wrong = -1, dict.fromkeys(outputs, "")
    for number in outputs:
        found = _differences(outputs, number, tf32=tf32)
        if believed < 0 or len(found) < len(wrong):
            believed, wrong = number, found
        if 2 * len(wrong) <= len(outputs):
            break
    if not any(leaf.isfinite().any() for leaf in outputs[believed]):
        return dict.fromkeys(outputs, "all answers are NaN or infinite, so that none is checked")
    return wrong


def _differences(outputs: Mapping[int, Sequence[Any]], believed: int, *, tf32: bool) -> dict[int, str]:
    """What is wrong with which candidates, if ``believed`` is right."""
    others = {number: got for number, got in outputs.items() if number != believed}
    found = {number: _difference(got, outputs[believed], tf32=tf32) for number, got in others.items()}
    return {
        number: f"differs from candidate {believed}, taken as eager: {text}"
        for number, text in found.items()
        if text is not None
    }


def _difference(got: Sequence[Any], expected: Sequence[Any], *, tf32: bool) -> str | None:
    """What is wrong, within the tolerance of the outputs' dtypes; None if nothing is."""
    for position, (one, other) in enumerate(zip(got, expected, strict=True)):
        verdict = compare_leaf(f"output {position}", one, other, other, tf32=tf32)
        if not verdict.ok:
            return f"{verdict.name}: {verdict.reason}"
    return None


def _load(bundle: Bundle) -> Function:
    executable = create_target("cuda").load(bundle.artifact, bundle.signature, {})
    return CompiledFunction(executable, bundle.signature, {})


def input_sets(signature: Signature, device: str) -> list[Values]:
    """Random inputs on ``device``, as many sets as calls must take turns over; always the same ones."""
    arguments = [spec for spec in signature.arguments if spec.kind == "input"]
    generator = torch.Generator(device).manual_seed(0)
    first = tuple(_value(spec, generator) for spec in arguments)
    more = rotations(_bytes(first)) - 1
    return [first, *(tuple(_value(spec, generator) for spec in arguments) for _ in range(more))]


def _value(spec: ArgumentSpec, generator: torch.Generator) -> Any:
    """Normally distributed numbers; integers of 8 bits from -4 to 3, others, which may be indices, 0 or 1."""
    dtype = getattr(torch, spec.dtype)
    if spec.shape is None:
        return torch.ones((), dtype=dtype).item()
    shape, device = tuple(int(size) for size in spec.shape), generator.device
    if dtype.is_floating_point or dtype.is_complex:
        wide = dtype if dtype.itemsize > 1 else torch.float32
        return torch.randn(shape, dtype=wide, device=device, generator=generator).to(dtype)
    low, high = (-4, 4) if dtype == torch.int8 else (0, 2)
    return torch.randint(low, high, shape, device=device, generator=generator).to(dtype)


def _bytes(values: Values) -> int:
    return sum(value.nbytes for value in values if isinstance(value, torch.Tensor))


def _rough_seconds(function: Function, inputs: Values) -> float:
    """Seconds per call, of a few calls: enough to tell who is far behind."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    for _ in range(_FEW_CALLS):
        function(*inputs)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3 / _FEW_CALLS


def _closely(
    functions: Mapping[int, Function], rough: Mapping[int, float], data: Sequence[Values], seconds: float
) -> dict[int, float]:
    """Seconds per call of the first candidate and of all that are not far behind."""
    best = min(rough.values(), default=math.inf)
    limit = _FAR_BEHIND * best + _HOST_SECONDS
    near = [number for number, time in rough.items() if time <= limit or number == min(rough)]
    contenders = {str(number): [lambda f=functions[number], x=x: f(*x) for x in data] for number in near}
    return {int(name): t.median_s for name, t in time_on_device(contenders, seconds=seconds).items()} if near else {}


if __name__ == "__main__":
    serve(answer)
