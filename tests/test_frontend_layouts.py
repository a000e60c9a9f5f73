"""Tensors whose dimensions lie in memory in another order than in their shape: taken as they lie, given as eager does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from simt.models import emulated
from torch import Tensor, nn
from torch.export import Dim

import mlirstack as ms
from mlirstack.bundle.array_function import ArrayFunction
from mlirstack.bundle.store import BundleInfo, read_bundle, write_bundle
from mlirstack.frontend.layouts import inverse, order_of
from mlirstack.targets.base import ArrayExecutable, Artifact
from mlirstack.targets.callable import CompiledFunction


class Images(nn.Module):
    """A convolution of an image and its sum over channels; the image transposed."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution = nn.Conv2d(4, 8, 3, padding=1)

    def forward(self, image: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(n, 4, h, w), (k, m) → (n, 8, h, w), (n, h, w), (m, k)."""
        convolved = torch.relu(self.convolution(image))
        return convolved, convolved.sum(1), (matrix + 1).t()


def inputs(batch: int = 2, seed: int = 0) -> tuple[Tensor, Tensor]:
    """A channels-last image and a matrix, as eager would be called with them."""
    generator = torch.Generator().manual_seed(seed)
    image = torch.randn(batch, 4, 6, 5, generator=generator).to(memory_format=torch.channels_last)
    return image, torch.randn(3, 7, generator=generator)


def assert_like_eager(function: CompiledFunction, model: nn.Module, given: tuple[Tensor, ...]) -> None:
    for got, expected in zip(function(*given), model(*given), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def assert_strides_of_eager(function: CompiledFunction, model: nn.Module, given: tuple[Tensor, ...]) -> None:
    assert [t.stride() for t in function(*given)] == [t.stride() for t in model(*given)]


@pytest.mark.portable
def test_orders() -> None:
    image = torch.empty(2, 4, 6, 5)
    assert order_of(image) is None
    assert order_of(image.to(memory_format=torch.channels_last)) == (0, 2, 3, 1)
    assert order_of(torch.empty(3, 7).t()) == (1, 0)
    # What lies in order in spite of its strides, what has gaps, what overlaps, what is empty.
    for tensor in (torch.empty(1, 5, 1).transpose(0, 2), image[:, ::2], torch.empty(3, 1).expand(3, 4), image[:0].mT):
        assert order_of(tensor) is None
    assert inverse((0, 2, 3, 1)) == (0, 3, 1, 2)


@pytest.mark.portable
def test_the_program_takes_and_gives_what_lies_in_memory() -> None:
    lowering = ms.lower(Images(), inputs(), target="cuda:sm_90a", to="dispatches")
    signature = lowering.program.signature
    image, matrix = (spec for spec in signature.arguments if spec.kind == "input")
    assert (image.shape, image.order, matrix.order) == ((2, 4, 6, 5), (0, 2, 3, 1), None)
    assert [result.order for result in signature.results] == [(0, 2, 3, 1), None, (1, 0)]
    assert "tensor<2x6x5x4xf32>" in lowering["dispatches"].text  # the image, as the kernel of the convolution reads it
    assert "x4x6x5xf32" not in lowering["dispatches"].text
    assert lowering.program.copied_inputs == ()


@pytest.mark.portable
@pytest.mark.usefixtures("without_tf32")
def test_inputs_in_any_order_give_results_in_eager_s() -> None:
    model, given = Images().eval(), inputs()
    function = emulated(ms.lower(model, given, target="cuda", to="gpu"))
    assert_like_eager(function, model, given)
    assert_strides_of_eager(function, model, given)
    image, matrix = inputs(seed=1)
    for other in (image.contiguous(), image.mT.contiguous().mT, torch.randn(2, 4, 6, 10)[..., ::2]):
        assert_like_eager(function, model, (other, matrix.t().contiguous().t()))


@pytest.mark.target
@pytest.mark.parametrize("target", ["cpu", "iree-cpu"])
def test_on_processors_with_any_number_of_images(target: str) -> None:
    model, batch = Images().eval(), Dim("batch", min=2, max=16)
    function = ms.compile(model, inputs(), dynamic_shapes=({0: batch}, None), target=target)
    for size in (2, 5):
        assert_like_eager(function, model, inputs(size))
        assert_strides_of_eager(function, model, inputs(size))
    image, matrix = inputs(3)
    assert_like_eager(function, model, (image.contiguous(), matrix))


class Scaled(nn.Module):
    """Writes to its input."""

    def forward(self, image: Tensor) -> Tensor:
        """(n, c, h, w), unchanged in shape."""
        image.mul_(2)
        return image + 1


@pytest.mark.target
def test_an_input_that_is_written_to_stays_where_it_is() -> None:
    image = inputs()[0]
    function = ms.compile(Scaled(), (image.clone(),), target="cpu")
    expected, given = 2 * image, image.clone()
    more = function(given)
    assert given.stride() == image.stride()
    torch.testing.assert_close(given, expected)
    torch.testing.assert_close(more, expected + 1)
    assert more.stride() == image.stride()


@pytest.mark.portable
def test_signatures_of_bundles_keep_the_order(tmp_path: Path) -> None:
    program = ms.lower(Images(), inputs(), target="cpu", to="fx").program
    info = BundleInfo("images", "tosa", "", {})
    write_bundle(tmp_path / "bundle", Artifact("cpu", {"code": b"none"}), program.signature, program.parameters, info)
    assert read_bundle(tmp_path / "bundle").signature == program.signature


@pytest.mark.portable
def test_arrays_are_taken_and_given_in_the_same_orders() -> None:
    model, given = Images().eval(), inputs()
    program = ms.lower(model, given, target="cpu", to="fx").program

    class Graph(ArrayExecutable):
        def run(self, inputs: Sequence[Any]) -> list[Any]:
            assert all(array.flags.c_contiguous for array in inputs)  # nothing to copy
            tensors = iter(torch.from_numpy(array) for array in inputs)
            specs = program.signature.arguments
            arguments = [program.parameters[s.name] if s.kind == "parameter" else next(tensors) for s in specs]
            with torch.no_grad():
                return [result.contiguous().numpy() for result in program.payload.module(*arguments)]

    results = ArrayFunction(Graph(), program.signature, {})(*(tensor.numpy() for tensor in given))
    for got, expected in zip(results, model(*given), strict=True):
        array = expected.detach().numpy()
        np.testing.assert_allclose(got, array, rtol=1e-5, atol=1e-6)
        assert got.strides == array.strides
