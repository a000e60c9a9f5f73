"""Elementary functions on vectors: which op becomes what, and how far the results are from float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy
import pytest
import torch
from torch import Tensor, nn

import mlirstack as ms
from mlirstack.bindings import new_context
from mlirstack.ir.ops import op_counts, walk
from mlirstack.ir.text import parse_module
from mlirstack.passes.vector_math import VectorMath, vector_functions, vector_symbol
from mlirstack.pipeline.runner import run_steps

pytestmark = pytest.mark.portable


def rewritten(op: str, kind: str, step: VectorMath) -> dict[str, int]:
    """Op counts of a function that applies ``op`` to one vector, after ``step``; calls are listed by callee."""
    text = f"func.func @f(%x: {kind}) -> {kind} {{\n %y = {op} %x : {kind}\n return %y : {kind}\n}}"
    module = parse_module(text, new_context())
    run_steps((step,), module)
    counts = dict(op_counts(module))
    for call in walk(module):
        if call.name == "func.call":
            callee = str(call.attributes["callee"])
            counts[callee] = counts.get(callee, 0) + 1
    return counts


def test_f32_exp_is_a_polynomial() -> None:
    counts = rewritten("math.exp", "vector<24xf32>", VectorMath())
    assert "math.exp" not in counts and "func.call" not in counts
    assert counts["math.fma"] == 3 + 6, "n, two parts of the remainder, a polynomial of degree six"


def test_a_vector_is_cut_into_calls_that_the_library_has() -> None:
    functions = (vector_symbol("log", 256, 32, 1), vector_symbol("log", 128, 32, 1))
    counts = rewritten("math.log", "vector<21xf32>", VectorMath(functions=functions))
    assert counts["@_ZGVdN8v_logf"] == 2
    assert counts["@_ZGVbN4v_logf"] == 1
    assert counts["math.log"] == 1, "one element is left for the scalar function"


def test_without_a_library_elements_are_scalars() -> None:
    counts = rewritten("math.log", "vector<2x3xf64>", VectorMath(functions=()))
    assert counts["math.log"] == 6
    assert "func.call" not in counts


def test_the_widest_register_is_an_option() -> None:
    functions = (vector_symbol("sin", 512, 32, 1), vector_symbol("sin", 256, 32, 1))
    assert rewritten("math.sin", "vector<16xf32>", VectorMath(512, functions=functions))["@_ZGVeN16v_sinf"] == 1
    assert rewritten("math.sin", "vector<16xf32>", VectorMath(256, functions=functions))["@_ZGVdN8v_sinf"] == 2


def test_ops_with_vector_instructions_stay() -> None:
    assert rewritten("math.sqrt", "vector<8xf32>", VectorMath())["math.sqrt"] == 1


def test_listed_functions_exist_in_the_library() -> None:
    import ctypes

    names = vector_functions()
    if not names:
        pytest.skip("this C library has no vector functions")
    library = ctypes.CDLL("libmvec.so.1")
    assert all(getattr(library, name) for name in names)


FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], float, float, float]] = {
    # function, interval, largest error in units in the last place
    "exp": (torch.exp, -87.0, 88.0, 2),
    "erf": (torch.erf, -5.0, 5.0, 8),
    "tanh": (torch.tanh, -12.0, 12.0, 8),
    "log": (torch.log, 1e-30, 1e5, 4),
    "sin": (torch.sin, -50.0, 50.0, 4),
}


class Function(nn.Module):
    """One function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_are_a_few_units_in_the_last_place(name: str) -> None:
    function, low, high, limit = FUNCTIONS[name]
    x = torch.cat([torch.linspace(low, high, 40_001), torch.logspace(-30, 0, 2_048).clamp(low, high)])
    result = ms.compile(Function(function), (x,), target="cpu")(x)
    exact = function(x.double())
    ulp = torch.from_numpy(numpy.abs(numpy.spacing(exact.float().numpy()))).double()
    assert ((result.double() - exact).abs() / ulp).max() <= limit


@pytest.mark.parametrize("name", ["exp", "erf", "tanh"])
def test_special_values(name: str) -> None:
    function = FUNCTIONS[name][0]
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-40, -1e-40, 89.0, -104.0, -95.0, 1e30, -1e30]
    x = torch.tensor(special * 8)
    result = ms.compile(Function(function), (x,), target="cpu")(x)
    torch.testing.assert_close(result, function(x), rtol=1e-6, atol=3e-45, equal_nan=True)
    if name != "exp":
        assert result.nan_to_num().abs().max() <= 1
