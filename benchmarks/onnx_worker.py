"""The process that judges ONNX's own tests of operators, one at a time: whatever kills it costs one test.

The question is a name, or null for all names; ``benchmarks/onnx_nodes.py`` asks.
"""

from __future__ import annotations

import functools
import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx.backend.test.loader import load_model_tests

import mlirstack as ms
from mlirstack.errors import MlirstackError, UnsupportedError, UsageError
from mlirstack.frontend.onnx.file import first_line
from mlirstack.supervised import Tell, serve


@functools.cache
def cases() -> dict[str, Any]:
    """The tests by name."""
    return {case.name: case for case in load_model_tests(kind="node")}


def operators(name: str) -> list[str]:
    """The operators of a test's graph."""
    return list(dict.fromkeys(node.op_type for node in cases()[name].model.graph.node))


def judge(name: str, tell: Tell) -> dict[str, Any]:
    """``verdict``: pass, wrong, rounding (of half precision), refused (by name, before anything ran), error (any other
    failure); with its reason."""
    verdict, reason = _judged(cases()[name], tell)
    row = {"verdict": verdict, "operators": operators(name)}
    return {**row, "reason": reason} if reason else row


def _judged(case: Any, tell: Tell) -> tuple[str, str]:
    tell("compile")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "node.onnx"
        onnx.save(case.model, path)
        try:
            function = ms.compile(path)
        except UnsupportedError as error:
            return "refused", _told([f"{op.op}: {op.reason}" for op in error.ops] or [error.message])
        except UsageError as error:
            return "refused", _told([error.message.replace(str(path), "it")])
        except MlirstackError as error:
            return "error", first_line(error)
    tell("run")
    for inputs, wanted in case.data_sets:
        try:
            found = function(*(_tensor(value) for value in inputs))
        except MlirstackError as error:
            return "error", first_line(error)
        difference = _difference(found if isinstance(found, tuple) else (found,), wanted, case)
        if difference:
            outputs = found if isinstance(found, tuple) else (found,)
            return "rounding" if _is_rounding(outputs, wanted) else "wrong", difference
    return "pass", ""


def _told(reasons: Iterable[str]) -> str:
    return " ".join("; ".join(reasons).split())[:200]


def _tensor(value: Any) -> torch.Tensor:
    """A NumPy value or a stored tensor of ONNX as a tensor; bfloat16 is ml_dtypes' there."""
    array = onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view("uint16").copy()).view(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape).copy())


def _difference(found: tuple[Any, ...], wanted: Iterable[Any], case: Any) -> str:
    """Empty where all outputs agree to the test's own tolerance."""
    for got, expected in zip(found, wanted, strict=True):
        try:
            torch.testing.assert_close(got, _tensor(expected), rtol=case.rtol, atol=case.atol, equal_nan=True)
        except AssertionError as error:
            return _told(str(error).splitlines())
    return ""


def _is_rounding(found: tuple[Any, ...], wanted: Iterable[Any]) -> bool:
    """Whether half precision alone makes the difference: two roundings, where the test's tolerance is of less than one."""
    pairs = [(got, _tensor(expected)) for got, expected in zip(found, wanted, strict=True)]
    if any(got.dtype not in (torch.float16, torch.bfloat16) for got, _ in pairs):
        return False
    return all(bool(((a - b).abs() <= 2 * torch.finfo(a.dtype).eps * b.abs()).all()) for a, b in pairs)


def _answer(question: str | None, tell: Tell) -> Any:
    if question is None:
        return {"onnx": onnx.__version__, "names": {name: operators(name) for name in cases()}}
    return judge(question, tell)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    serve(_answer)
