"""Inputs of a bundle from files (.npz, .npy, .pt) or made up from its signature, as flat leaves ready to be placed."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mlirstack.bundle.golden import Golden
from mlirstack.bundle.manifest import Manifest
from mlirstack.bundle.parameters import numpy_dtype
from mlirstack.errors import UsageError
from mlirstack.frontend.program import ArgumentSpec
from mlirstack.pipeline.registry import nearest
from mlirstack.targets.requirements import is_installed

SUFFIXES = (".npz", ".npy", ".pt")


def read_inputs(file: Path, manifest: Manifest) -> list[Any]:
    """The leaves of one call from a file.

    A .npz names inputs as the signature does (``x``), or has them in order; a .npy is the only input; a .pt is a tensor, a
    list of tensors, or a dictionary by name.  Raises :class:`UsageError` for anything that does not fit.
    """
    try:
        if file.suffix == ".npy":
            found: Any = np.load(file, allow_pickle=False)
        elif file.suffix == ".npz":
            with np.load(file, allow_pickle=False) as archive:
                found = {name: archive[name] for name in archive.files}
        elif file.suffix == ".pt":
            found = _read_pt(file)
        else:
            raise UsageError(f"{file}: inputs are read from {', '.join(SUFFIXES)}")
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        reason = "it holds something else than arrays" if "pickle" in str(error) else error
        raise UsageError(f"cannot read inputs from {file}: {reason}") from error
    specs = _inputs(manifest)
    if isinstance(found, Mapping):
        values = _by_name(file, dict(found), specs)
    else:
        values = list(found) if isinstance(found, (list, tuple)) else [found]
    if len(values) != len(specs):
        names = ", ".join(spec.name for spec in specs)
        raise UsageError(f"{file} holds {len(values)} input(s), the model takes {len(specs)}: {names}")
    leaves = _template(manifest)
    for spec, value in zip(specs, values, strict=True):
        leaves[spec.leaf or 0] = _fitting(file, spec, value)
    return leaves


def generated_inputs(manifest: Manifest, golden: Golden | None, *, seed: int, sizes: Mapping[str, int]) -> list[Any]:
    """Made-up leaves: floats normally distributed, everything else drawn from the values of the golden inputs.

    ``sizes`` sets dynamic dimensions by name; the others are as in the golden inputs.  Raises :class:`UsageError` where a
    size is out of range.
    """
    signature = manifest.signature
    for name, size in sizes.items():
        if name not in signature.dynamic:
            known = ", ".join(signature.dynamic) or "none"
            raise UsageError(
                f"no dynamic dimension '{name}'{nearest(name, [*signature.dynamic])}", hint=f"there are: {known}"
            )
        low, high = signature.dynamic[name]
        if size < low or (high is not None and size > high):
            raise UsageError(f"dimension '{name}' is {size}, allowed: {low} to {high or 'any'}")
    example = golden.inputs(0) if golden else None
    generator = np.random.default_rng(seed)
    leaves = _template(manifest)
    for spec in _inputs(manifest):
        model = example[spec.leaf or 0] if example else None
        leaves[spec.leaf or 0] = _generated(spec, model, generator, sizes)
    return leaves


def _generated(spec: ArgumentSpec, model: Any, generator: np.random.Generator, sizes: Mapping[str, int]) -> Any:
    if spec.shape is None:
        return model if model is not None else 1
    given = model.shape if isinstance(model, np.ndarray) else [1] * len(spec.shape)
    shape = [sizes.get(d, given[i]) if isinstance(d, str) else d for i, d in enumerate(spec.shape)]
    dtype = numpy_dtype(spec.dtype)
    if spec.dtype.startswith(("float", "bfloat", "complex")):
        return generator.standard_normal(shape, np.float32).astype(dtype)
    values = model.reshape(-1) if isinstance(model, np.ndarray) and model.size else np.zeros(1, dtype)
    return generator.choice(values, size=shape).astype(dtype)


def _read_pt(file: Path) -> Any:
    if not is_installed("torch"):
        raise UsageError(f"{file} is a file of torch, which is not installed", hint="save the inputs as .npz")
    import pickle

    import torch

    from mlirstack.bundle.torch_arrays import array_of

    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError) as error:
        raise UsageError(f"cannot read inputs from {file}: {str(error).splitlines()[0]}") from error

    def plain(value: Any) -> Any:
        return array_of(value) if isinstance(value, torch.Tensor) else value

    if isinstance(found, Mapping):
        return {name: plain(value) for name, value in found.items()}
    return [plain(value) for value in found] if isinstance(found, (list, tuple)) else plain(found)


def _by_name(file: Path, found: dict[str, Any], specs: Sequence[ArgumentSpec]) -> list[Any]:
    names = [spec.name for spec in specs]
    if set(found) == set(names):
        return [found[name] for name in names]
    if all(name.startswith("arr_") for name in found):  # what np.savez calls positional arrays
        return [found[f"arr_{i}"] for i in range(len(found)) if f"arr_{i}" in found]
    absent = [name for name in names if name not in found]
    unknown = [name for name in found if name not in names]
    what = f"lacks {', '.join(absent)}" if absent else f"holds {', '.join(unknown)}, which the model does not take"
    raise UsageError(f"{file} {what}", hint=f"inputs of the model: {', '.join(names)}")


def _fitting(file: Path, spec: ArgumentSpec, value: Any) -> Any:
    """``value`` as the signature wants it; what does not fit is left to the check of the call, which names the argument."""
    if spec.shape is None:
        return value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
    if not isinstance(value, np.ndarray):
        raise UsageError(f"{file}: input '{spec.name}' is a {type(value).__name__}, not an array")
    if spec.dtype == "bfloat16" and value.dtype in (np.uint16, np.dtype("V2")):  # .npy has no name for it
        return value.view(numpy_dtype("bfloat16"))
    return value


def _inputs(manifest: Manifest) -> list[ArgumentSpec]:
    return [spec for spec in manifest.signature.arguments if spec.kind == "input" and spec.leaf is not None]


def _template(manifest: Manifest) -> list[Any]:
    """As many leaves as the model takes, with those filled in that are part of the program."""
    _, tree = json.loads(manifest.signature.in_spec)
    leaves: list[Any] = [None] * _leaf_count(tree)
    for leaf, value in manifest.signature.specialized:
        leaves[leaf] = value
    return leaves


def _leaf_count(tree: Mapping[str, Any]) -> int:
    return 1 if tree["type"] is None else sum(_leaf_count(child) for child in tree["children_spec"])
