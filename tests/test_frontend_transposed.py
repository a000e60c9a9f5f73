"""Transposed convolutions by phases: the rearrangement against torch's own, and compiled for a target."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from several import assert_as_eager
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import mlirstack as ms
from mlirstack.frontend.decompositions.table import decomposition_table
from mlirstack.frontend.decompositions.transposed import _transposed

pytestmark = pytest.mark.portable

aten = torch.ops.aten


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("stride,dilation", list(itertools.product((1, 2, 3, 4), repeat=2)))
def test_phases_of_one_dimension(stride: int, dilation: int, groups: int) -> None:
    """Every kernel size up to 5, padding and output padding, in float64: only the order of sums differs."""
    torch.manual_seed(0)
    decomposed, seen, is_plain = _transposed, 0, stride == 1 and groups == 1
    for kernel, padding, extra in itertools.product(range(1, 6), range(5), range(max(stride, dilation))):
        x = torch.randn(2, 4, 5, dtype=torch.float64)
        weight, bias = torch.randn(4, 3, kernel, dtype=torch.float64), torch.randn(3 * groups, dtype=torch.float64)
        arguments = (x, weight, bias, [stride], [padding], [dilation], True, [extra], groups)
        if 4 * stride - 2 * padding + dilation * (kernel - 1) + 1 + extra < 1:
            continue
        found = decomposed(*arguments)
        assert (found is NotImplemented) == is_plain
        if not is_plain:
            torch.testing.assert_close(found, aten.convolution(*arguments))
            seen += 1
    assert seen >= (0 if is_plain else 10)


@pytest.mark.parametrize("rank", [2, 3])
def test_dimensions_are_independent(rank: int) -> None:
    """Another stride, dilation, kernel and padding in each dimension."""
    torch.manual_seed(0)
    stride, dilation, padding, extra = [2, 3, 1][:rank], [1, 2, 2][:rank], [1, 0, 2][:rank], [1, 2, 0][:rank]
    x, weight = torch.randn(1, 3, 4, 3, 5)[..., : 5 if rank == 3 else 1], torch.randn(3, 2, 3, 2, 4)
    if rank == 2:
        x, weight = x[..., 0], weight[..., 0]
    arguments = (x.double(), weight.double(), None, stride, padding, dilation, True, extra, 1)
    torch.testing.assert_close(_transposed(*arguments), aten.convolution(*arguments))


def test_positions_in_the_padding_are_not_computed() -> None:
    """Seven input positions and two taps make eight positions of each phase, of which six reach into the output."""
    x, weight, options = torch.randn(1, 2, 7, 7), torch.randn(2, 3, 4, 4), (None, [2, 2], [3, 2], [1, 1], True, [0, 0], 1)
    graph = make_fx(lambda x, weight: _transposed(x, weight, *options))(x, weight)
    (node,) = [node for node in graph.graph.nodes if node.target == aten.convolution.default]
    assert tuple(node.meta["val"].shape) == (1, 12, 6, 6)
    torch.testing.assert_close(graph(x, weight), aten.convolution(x, weight, *options))


def test_a_plain_convolution_stays_as_it_is() -> None:
    x, weight = torch.randn(1, 2, 5), torch.randn(3, 2, 3)
    plain = (x, weight, None, [2], [1], [1], False, [0], 1)
    assert _transposed(*plain) is NotImplemented
    transposed = (torch.randn(1, 3, 5), weight, None, [2], [1], [1], True, [0], 1)
    torch.testing.assert_close(decomposition_table()[aten.convolution.default](*transposed), aten.convolution(*transposed))


@pytest.mark.target
@pytest.mark.parametrize(
    "module,shape",
    [
        (nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), (2, 4, 7)),
        (nn.ConvTranspose2d(4, 6, (3, 5), stride=(2, 3), padding=(1, 2), dilation=(2, 1)), (2, 4, 5, 6)),
        (nn.ConvTranspose3d(4, 4, (3, 2, 3), stride=(2, 2, 1), groups=4), (1, 4, 3, 4, 5)),
        (nn.ConvTranspose2d(8, 8, (5, 7), 2, (2, 3), (0, 1), groups=2), (1, 8, 3, 9)),
    ],
    ids=["1d-grouped", "2d-dilated", "3d-depthwise", "2d-grouped"],
)
def test_compiled(module: nn.Module, shape: tuple[int, ...]) -> None:
    x = torch.randn(*shape)
    with torch.no_grad():
        torch.testing.assert_close(ms.compile(module.eval(), (x,), target="cpu")(x), module(x))


@pytest.mark.parametrize(
    "options",
    [{"stride": 2}, {"stride": (2, 3), "padding": 1, "dilation": (1, 2)}, {"stride": 3, "groups": 2, "output_padding": 1}],
)
def test_beside_infinities_nothing_is_multiplied_by_a_zero_that_was_put_in(options: dict[str, Any]) -> None:
    """Phases of fewer taps than others were filled up with zeros, which made NaN of infinities."""
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(1, 4, 5, 4, generator=generator), torch.randn(4, 2, 3, 4, generator=generator)
    x[0, 1, 2, 1], x[0, 2, 4, 3] = float("inf"), float("nan")
    programs = {"image": lambda x, weight: nn.functional.conv_transpose2d(x, weight, **options)}
    assert_as_eager(programs, x, weight)
