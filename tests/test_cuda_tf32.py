"""f32 as TF32: where torch's settings allow it and nowhere else, with the factors rounded, and said in the artifact."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from cuda_products import TF32_TOLERANCE
from simt.models import run_model
from torch import Tensor, nn

from mlirstack.api import lower
from mlirstack.compare.accuracy import compare_leaf
from mlirstack.errors import MlirstackError
from mlirstack.lowering import Lowering, LowerOptions, build_program, program_of
from mlirstack.passes.cuda.allow_tf32 import AllowTf32
from mlirstack.passes.cuda.tf32_kernels import kernels_with_tf32
from mlirstack.targets.cuda.target import CudaTarget
from mlirstack.targets.tf32 import tf32_of_torch

AllowTf32Function = Callable[[bool, bool], None]


@pytest.fixture(autouse=True)
def defaults(allow_tf32: AllowTf32Function) -> None:
    """torch's own settings, whatever other tests did."""
    allow_tf32(False, True)


# --------------------------------------------------------------------------------------------------------------- settings


@pytest.mark.portable
def test_settings_of_torch(allow_tf32: AllowTf32Function) -> None:
    assert tf32_of_torch() == ("convolution",)
    allow_tf32(True, True)
    assert tf32_of_torch() == ("matmul", "convolution")
    allow_tf32(True, False)
    assert tf32_of_torch() == ("matmul",)


_FRESH = """
import json, sys, warnings
warnings.simplefilter("error")
from mlirstack.targets.tf32 import tf32_of_torch
found = [tf32_of_torch()]
assert "torch" not in sys.modules
import torch
found.append(tf32_of_torch())
torch.set_float32_matmul_precision("high")
found.append(tf32_of_torch())
torch.backends.cuda.matmul.fp32_precision = "ieee"
torch.backends.cudnn.conv.fp32_precision = "ieee"
found.append(tf32_of_torch())
torch.backends.cuda.matmul.fp32_precision = "tf32"
found.append(tf32_of_torch())
print(json.dumps(found))
"""


@pytest.mark.portable
def test_other_ways_to_set_it_and_the_defaults_without_torch() -> None:
    result = subprocess.run([sys.executable, "-c", _FRESH], capture_output=True, text=True, timeout=300, check=True)
    default, both = ["convolution"], ["matmul", "convolution"]
    assert json.loads(result.stdout) == [default, default, both, [], ["matmul"]]


@pytest.mark.portable
def test_the_pipeline_says_it(allow_tf32: AllowTf32Function) -> None:
    def text() -> str:
        return "".join(stage.text() for stage in CudaTarget().pipeline("tosa", "fx").stages)

    assert "mlirstack-allow-tf32{ops=convolution}" in text()
    allow_tf32(True, True)
    assert "mlirstack-allow-tf32{ops=matmul,convolution}" in text()
    allow_tf32(False, False)
    assert "tf32" not in text()


# ------------------------------------------------------------------------------------------------------------------ marks


class EveryKind(nn.Module):
    """Products, convolutions, and what looks like them after fusion."""

    def __init__(self) -> None:
        super().__init__()
        self.window = nn.Conv2d(8, 16, 3, padding=1)
        self.point = nn.Conv2d(16, 32, 1)
        self.depthwise = nn.Conv2d(32, 32, 3, groups=32)

    def forward(self, image: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        sum_of_products = (a[:, None, :] * b[None]).sum(-1)
        return self.depthwise(self.point(self.window(image))), a @ b.t(), sum_of_products


INPUTS = (torch.randn(1, 8, 9, 9), torch.randn(48, 40), torch.randn(72, 40))


def marked(lowering: Lowering) -> int:
    """How many kernels have a multiplication that may be TF32."""
    bodies = re.findall(r"func\.func private @kernel.*?^  }", str(lowering.payload), re.DOTALL | re.MULTILINE)
    return sum("mlirstack.tf32" in body for body in bodies)


@pytest.mark.portable
@pytest.mark.parametrize("route", ["tosa", "linalg"])
def test_convolutions_are_marked_and_products_where_allowed(route: str, allow_tf32: AllowTf32Function) -> None:
    def lowered() -> Lowering:
        return lower(EveryKind().eval(), INPUTS, target="cuda", route=route, to="dispatches")

    assert marked(lowered()) == 2  # 3x3 and 1x1
    allow_tf32(True, True)
    assert marked(lowered()) == 3
    allow_tf32(True, False)
    assert marked(lowered()) == 1


@pytest.mark.portable
def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(MlirstackError, match="no f32 ops are called 'conv'"):
        AllowTf32(("conv",)).apply(None)


# ----------------------------------------------------------------------------------------------------------------- answers


@pytest.mark.portable
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Conv2d(3, 10, 5, stride=2, padding=2), (2, 3, 13, 17)),
        (nn.Conv2d(32, 40, 3, padding=1, groups=2), (1, 32, 9, 8)),
        (nn.Conv2d(36, 40, 1), (1, 36, 9, 8)),
        (nn.Conv2d(32, 64, 3, padding=1), (2, 32, 9, 8)),
        (nn.ConvTranspose2d(6, 8, 3, stride=2, padding=1), (1, 6, 7, 9)),
    ],
    ids=["5x5 s2", "groups", "1x1", "3x3", "transposed"],
)
def test_convolutions(model: nn.Module, shape: tuple[int, ...], arch: str) -> None:
    torch.manual_seed(0)
    image = torch.randn(shape)
    lowering = lower(model.eval(), (image,), target=f"cuda:{arch}", to="gpu")
    (got,) = run_model(lowering, (image,))
    with torch.no_grad():
        wanted = copy.deepcopy(model).double()(image.double())
    error = float((got.double() - wanted).norm() / wanted.norm())
    assert 1e-5 < error < TF32_TOLERANCE


@pytest.mark.portable
def test_what_tf32_represents_is_multiplied_exactly() -> None:
    torch.manual_seed(0)
    model = nn.Conv2d(8, 8, 3, bias=False)
    model.weight.data = torch.randint(-1024, 1024, model.weight.shape).float()
    image = torch.randint(-16, 16, (1, 8, 9, 9)).float()
    (got,) = run_model(lower(model.eval(), (image,), target="cuda", to="gpu"), (image,))
    assert torch.equal(got, model(image))


@pytest.mark.target
def test_the_artifact_names_the_kernels(allow_tf32: AllowTf32Function) -> None:
    program = program_of(EveryKind().eval(), INPUTS)
    allow_tf32(False, False)
    _, exact, _ = build_program(program, LowerOptions("cuda:sm_90a"))
    allow_tf32(True, False)
    lowering, artifact, _ = build_program(program, LowerOptions("cuda:sm_90a"))
    assert exact.metadata["tf32"] == []
    assert len(artifact.metadata["tf32"]) == 1
    assert re.search(r"H(G)?MMA\S*\.TF32", lowering["sass"].text)


@pytest.mark.portable
def test_kernels_with_tf32_by_hand() -> None:
    bodies = {"one": "add.f32", "two": "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"}
    ptx = "".join(f".visible .entry {name}(\n)\n{{ {body} }}\n" for name, body in bodies.items())
    assert kernels_with_tf32(ptx) == ["two"]


def test_answers_with_tf32_have_the_tolerance_of_f16() -> None:
    x = torch.linspace(1, 2, 64)
    off = x * (1 + 1e-3)
    assert compare_leaf("y", off, x, x.double(), tf32=True).ok
    assert not compare_leaf("y", off, x, x.double()).ok
    assert not compare_leaf("y", off.double(), x.double(), x.double(), tf32=True).ok
