"""Small programs that are compiled together, and held against eager: a test of many operations costs one compilation."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import mlirstack as ms
from mlirstack.compare.accuracy import compare_leaf


class Several(nn.Module):
    """Programs that are compiled together: each gets the same inputs."""

    def __init__(self, programs: dict[str, Callable[..., Any]]) -> None:
        super().__init__()
        self.programs = programs

    def forward(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: program(*inputs) for name, program in self.programs.items()}


def assert_as_eager(
    programs: dict[str, Callable[..., Any]], *inputs: torch.Tensor, route: str = "auto", target: str = "cpu"
) -> None:
    """Every program gives eager's answer, to the tolerance of its dtype against float64, integers exactly."""
    module = Several(programs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = ms.compile(module, inputs, target=target, route=route)(*inputs)
    expected = module(*inputs)
    precise = module(*(x.double() if x.is_floating_point() else x for x in inputs))
    wrong = {name: compare_leaf(name, got[name], expected[name], precise[name]).reason for name in programs}
    wrong = {name: reason for name, reason in wrong.items() if reason}
    assert not wrong, wrong


def assert_bits_of_eager(
    programs: dict[str, Callable[..., Any]], *inputs: torch.Tensor, route: str = "auto", target: str = "cpu"
) -> None:
    """Every program gives eager's answer, each number of it; NaN of any bits."""
    module = Several(programs)
    got, expected = ms.compile(module, inputs, target=target, route=route)(*inputs), module(*inputs)
    wrong = [name for name in programs if not torch.equal(got[name].nan_to_num(), expected[name].nan_to_num())]
    assert not wrong, wrong
