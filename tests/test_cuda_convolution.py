"""Convolutions: which ops become one kernel, what the assembler makes of it, answers in the emulator against eager."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from simt import run_plan
from simt.models import run_model
from torch import Tensor, nn

from mlirstack.api import lower
from mlirstack.bindings import ir, new_context
from mlirstack.ir.ops import functions
from mlirstack.lowering import Lowering
from mlirstack.passes.cuda.cubin import assemble
from mlirstack.passes.cuda.device_code import TranslateKernels
from mlirstack.passes.cuda.nvvm import NVVM_STEPS
from mlirstack.passes.cuda.ptx import CompilePtx
from mlirstack.passes.cuda.sass import sass_text
from mlirstack.pipeline.runner import run_steps
from mlirstack.schedules.cuda.convolution.convolution import Convolution
from mlirstack.schedules.cuda.convolution.windows import match_window
from mlirstack.schedules.cuda.device import DEVICES
from mlirstack.schedules.cuda.emitter import Parameters
from mlirstack.schedules.cuda.graph import KernelGraph

TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}  # relative L2: rounding of the result
HOPPER, AMPERE = DEVICES["sm_90a"], DEVICES["sm_80"]
CONVOLUTION = Convolution()


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with new_context(), ir.Location.unknown():
        yield


# -------------------------------------------------------------------------------------------------------- whole pipelines


def lowered(model: nn.Module, *inputs: Tensor, arch: str = "sm_90a", to: str = "gpu") -> Lowering:
    return lower(model.eval(), inputs, target=f"cuda:{arch}", to=to)


def schedules(lowering: Lowering) -> list[str]:
    """Names of the emitters of the kernels of ``@main``, in the order of their calls, at the stage ``dispatches``."""
    text = str(lowering.payload)
    emitter = dict(re.findall(r"func\.func private @(\w+)\(.*?mlirstack\.schedule = \{[^}]*?name = \"(\w+)\"", text))
    return [emitter[name] for name in re.findall(r"call @(\w+)\(", text[text.index("@main") :])]


def error(model: nn.Module, *inputs: Tensor, arch: str = "sm_90a") -> float:
    """Relative L2 error of the emulated model against float64."""
    (got,) = run_model(lowered(model, *inputs, arch=arch), inputs)
    with torch.no_grad():
        wanted = model.double()(*(x.double() for x in inputs))
    return float((got.double() - wanted).norm() / wanted.norm())


class Channels(nn.Module):
    """A convolution of any rank on images in memory order (n, spatial dimensions, c), and its result in that order."""

    def __init__(self, convolution: nn.Module) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, x: Tensor) -> Tensor:
        return self.convolution(x.movedim(-1, 1)).movedim(1, -1).contiguous()


@pytest.mark.portable
@pytest.mark.parametrize(
    ("convolution", "shape"),
    [
        (nn.Conv2d(64, 72, 3, padding=1), (5, 7, 7, 64)),
        (nn.Conv2d(64, 72, 3, stride=2, padding=1, bias=False), (1, 18, 20, 64)),
        (nn.Conv2d(48, 128, (5, 3), padding=(4, 2), dilation=2), (2, 9, 6, 48)),
        (nn.Conv2d(64, 72, 1, stride=2), (2, 16, 14, 64)),
        (nn.Conv1d(64, 72, 5, stride=3, padding=2), (3, 80, 64)),
        (nn.Conv3d(64, 72, 3, padding=1), (2, 4, 5, 6, 64)),
    ],
    ids=["padded", "one image, stride 2", "dilated", "1x1, stride 2", "1-D", "3-D"],
)
def test_the_copy_engine_finds_the_pixels(convolution: nn.Module, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model, image = Channels(convolution.half()), torch.randn(shape).half()
    lowering = lowered(model, image, to="dispatches")
    assert 'engine = "tma"' in str(lowering.payload)
    assert schedules(lowering) == ["convolution"]
    assert "extract_slice" not in str(lowering.payload)
    assert error(model, image) < TOLERANCE[torch.float16]


class Residual(nn.Module):
    """ResNet's basic block, whose input and result are (n, c, h, w)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))) + x)


@pytest.mark.portable
def test_images_stay_channels_last_between_convolutions() -> None:
    """One change of layout, before the first; the second writes the channels of a pixel one by one."""
    torch.manual_seed(0)
    model, image = Residual(128).half(), torch.randn(2, 128, 7, 7).half()
    lowering = lowered(model, image, to="dispatches")
    assert str(lowering.payload).count('engine = "tma"') == 2
    assert len(schedules(lowering)) == 3 and schedules(lowering)[1:] == ["convolution", "convolution"]
    assert error(model, image) < TOLERANCE[torch.float16]


class ChannelsLast(nn.Module):
    """A block on images in memory order (n, h, w, c), as a network of convolutions has them inside."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        y = self.norm(self.convolution(x.permute(0, 3, 1, 2)))
        return torch.relu(y + residual.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


@pytest.mark.portable
def test_padding_norm_residual_and_relu_are_one_kernel() -> None:
    model = ChannelsLast(16, 32).half()
    inputs = torch.randn(2, 9, 9, 16).half(), torch.randn(2, 9, 9, 32).half()
    assert schedules(lowered(model, *inputs, to="dispatches")) == ["convolution"]
    assert error(model, *inputs) < TOLERANCE[torch.float16]


@pytest.mark.portable
@pytest.mark.parametrize(
    ("model", "shape", "dtype"),
    [
        (nn.Conv2d(3, 10, 5, stride=2, padding=2), (2, 3, 13, 17), torch.float32),
        (nn.Conv2d(3, 10, 7, stride=2, padding=3), (1, 3, 20, 20), torch.float16),
        (nn.Conv2d(32, 40, 3, dilation=2, padding=2, bias=False), (2, 32, 9, 8), torch.bfloat16),
        (nn.Conv1d(8, 16, 3, padding=1), (2, 8, 33), torch.float32),
        (nn.Conv3d(4, 8, 3, padding=1, stride=2), (1, 4, 7, 7, 7), torch.float32),
        (nn.Conv2d(16, 16, (3, 1), padding=(1, 2)), (1, 16, 6, 6), torch.float32),
        (nn.Conv2d(16, 32, 1, stride=2), (2, 16, 9, 9), torch.float16),
        (nn.ConvTranspose2d(6, 8, 3, stride=2, padding=1), (1, 6, 7, 9), torch.float32),
    ],
    ids=["5x5 s2", "7x7 s2 f16", "dilated bf16", "1d", "3d s2", "3x1", "1x1 s2 f16", "transposed"],
)
@pytest.mark.usefixtures("without_tf32")
def test_windows(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model, inputs = model.to(dtype), torch.randn(shape).to(dtype)
    assert "convolution" in schedules(lowered(model, inputs, to="dispatches"))
    assert error(model, inputs) < TOLERANCE[dtype]


@pytest.mark.portable
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_one_convolution_after_the_other_stays_channels_last(arch: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(32, 64, 3, padding=1), nn.SiLU(), nn.Conv2d(64, 40, 3)).half()
    inputs = torch.randn(1, 32, 10, 11).half()
    found = schedules(lowered(model, inputs, arch=arch, to="dispatches"))
    assert found[-2:] == ["convolution", "convolution"]
    assert len(found) == 3  # and the change of layout in front
    assert error(model, inputs, arch=arch) < 2 * TOLERANCE[torch.float16]  # two results are rounded


# ---------------------------------------------------------------------------------------------------------- one kernel


def convolution_text(
    image: tuple[int, int, int, int],
    outputs: int,
    window: int,
    *,
    element: str = "f16",
    stride: int = 1,
    order: str = "nhwc",
    weights: str = "fyxc",
) -> str:
    """A convolution without padding.  ``order``: of the image's dimensions in memory; ``weights``: of those of the weights,
    features, height, width and channels."""
    n, h, w, c = image
    oh, ow = ((size - window) // stride + 1 for size in (h, w))
    sizes = {"n": n, "h": h, "w": w, "c": c}
    index = {"n": "n", "h": f"oh * {stride} + kh", "w": f"ow * {stride} + kw", "c": "c"}
    shape, access = "x".join(str(sizes[d]) for d in order), ", ".join(index[d] for d in order)
    taps = "x".join(str({"f": outputs, "y": window, "x": window, "c": c}[d]) for d in weights)
    weight_access = ", ".join({"f": "f", "y": "kh", "x": "kw", "c": "c"}[d] for d in weights)
    x, y, z = (f"memref<{s}x{element}>" for s in (shape, taps, f"{n}x{oh}x{ow}x{outputs}"))
    sums = f"memref<{n}x{oh}x{ow}x{outputs}xf32>"
    loops = "n, oh, ow, f, kh, kw, c"
    widen = "" if element == "f32" else f"%u = arith.extf %p : {element} to f32\n%v = arith.extf %q : {element} to f32"
    u, v = ("%p", "%q") if element == "f32" else ("%u", "%v")
    round_ = "" if element == "f32" else f"%r = arith.truncf %s : f32 to {element}"
    plain = "affine_map<(a, b, c, d) -> (a, b, c, d)>"
    return f"""module {{ func.func @main(%x: {x}, %y: {y}) -> {z} {{
      %zero = arith.constant 0.0 : f32
      %sums = memref.alloc() : {sums}
      %z = memref.alloc() : {z}
      linalg.fill ins(%zero : f32) outs(%sums : {sums})
      linalg.generic {{
        indexing_maps = [affine_map<({loops}) -> ({access})>, affine_map<({loops}) -> ({weight_access})>,
                         affine_map<({loops}) -> (n, oh, ow, f)>],
        iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]
      }} ins(%x, %y : {x}, {y}) outs(%sums : {sums}) {{
      ^bb0(%p: {element}, %q: {element}, %old: f32):
        {widen}
        %m = arith.mulf {u}, {v} : f32
        %a = arith.addf %old, %m : f32
        linalg.yield %a : f32
      }}
      linalg.generic {{
        indexing_maps = [{plain}, {plain}], iterator_types = ["parallel", "parallel", "parallel", "parallel"]
      }} ins(%sums : {sums}) outs(%z : {z}) {{
      ^bb0(%s: f32, %old: {element}):
        {round_}
        linalg.yield {"%s" if element == "f32" else "%r"} : {element}
      }}
      return %z : {z} }} }}"""


def emitted(text: str, parameters: Parameters | None = None, arch: str = "sm_90a") -> Any:
    module = ir.Module.parse(text)
    function = next(iter(functions(module)))
    graph = KernelGraph.of(function)
    chosen = parameters or CONVOLUTION.choose(graph, DEVICES[arch])
    assert chosen is not None
    CONVOLUTION.emit(function, graph, chosen, DEVICES[arch])
    for op in reversed(list(function.regions[0].blocks[0].operations)):
        if op.operation.name.startswith("linalg."):
            op.operation.erase()
    module.operation.verify()
    return module


def answer_error(
    text: str,
    image: Tensor,
    weights: Tensor,
    stride: int = 1,
    order: str = "nhwc",
    parameters: Parameters | None = None,
    weight_order: str = "fyxc",
) -> float:
    arrays = [
        image.permute(["nhwc".index(d) for d in order]).contiguous(),
        weights.permute(["fyxc".index(d) for d in weight_order]).contiguous(),
    ]
    (got,) = run_plan(emitted(text, parameters), arrays)
    wanted = nn.functional.conv2d(image.double().permute(0, 3, 1, 2), weights.double().permute(0, 3, 1, 2), stride=stride)
    difference = torch.from_numpy(got.astype("float64")) - wanted.permute(0, 2, 3, 1)
    return float(difference.norm() / wanted.norm())


def tile(engine: str, **sizes: int) -> Parameters:
    return {"engine": engine, "splits": 1, "group": 8, **sizes}


WGMMA = tile("wgmma", rows=128, columns=64, warpgroups=2, stages=4)
TMA: Parameters = {
    "engine": "tma", "rows": 128, "columns": 64, "stages": 4, "multicast": "none", "split": 1, "consumers": 2, "group": 8,
    "pingpong": False,
}  # fmt: skip
MMA = tile("mma", rows=64, columns=64, k_bytes=64, warp_rows=2, warp_columns=2, stages=3)


@pytest.mark.portable
@pytest.mark.parametrize("order", ["nhwc", "nchw"])
@pytest.mark.parametrize("parameters", [WGMMA, {**WGMMA, "splits": 3}, MMA], ids=["wgmma", "wgmma split", "mma"])
@pytest.mark.parametrize(("channels", "stride"), [(16, 1), (12, 2), (5, 1)])
def test_engines_and_layouts(parameters: Parameters, channels: int, stride: int, order: str) -> None:
    torch.manual_seed(channels)
    image, weights = torch.randn(2, 9, 11, channels).half(), torch.randn(40, 3, 3, channels).half()
    text = convolution_text((2, 9, 11, channels), 40, 3, stride=stride, order=order)
    assert answer_error(text, image, weights, stride, order, parameters) < TOLERANCE[torch.float16]


@pytest.mark.portable
def test_several_blocks_of_rows_per_warpgroup() -> None:
    image, weights = torch.randn(1, 18, 20, 24).bfloat16(), torch.randn(136, 3, 3, 24).bfloat16()
    text = convolution_text((1, 18, 20, 24), 136, 3, element="bf16")
    parameters = tile("wgmma", rows=256, columns=128, warpgroups=2, stages=3)
    assert answer_error(text, image, weights, parameters=parameters) < TOLERANCE[torch.bfloat16]


@pytest.mark.portable
@pytest.mark.parametrize(
    "parameters",
    [
        TMA,
        {**TMA, "columns": 128, "pingpong": True},
        {**TMA, "columns": 128, "multicast": "a"},
        {**TMA, "multicast": "b"},
        {**TMA, "columns": 128, "split": 2},
        {**TMA, "columns": 160},
    ],
    ids=["plain", "pingpong", "image to both", "weights to both", "split", "160 features"],
)
@pytest.mark.parametrize(("shape", "features", "taps", "stride"), [((3, 9, 11, 72), 72, 3, 1), ((5, 7, 7, 8), 320, 2, 2)])
def test_pixels_by_the_copy_engine(
    parameters: Parameters, shape: tuple[int, ...], features: int, taps: int, stride: int
) -> None:
    torch.manual_seed(0)
    image, weights = torch.randn(shape).half(), torch.randn(features, taps, taps, shape[-1]).half()
    text = convolution_text(shape, features, taps, stride=stride)
    assert answer_error(text, image, weights, stride, parameters=parameters) < TOLERANCE[torch.float16]


@pytest.mark.portable
@pytest.mark.parametrize("multicast", ["none", "b"])
def test_features_may_be_contiguous(multicast: str) -> None:
    image, weights = torch.randn(2, 9, 9, 64).half(), torch.randn(136, 3, 3, 64).half()
    text = convolution_text((2, 9, 9, 64), 136, 3, weights="yxcf")
    parameters = {**TMA, "columns": 128, "multicast": multicast}
    assert answer_error(text, image, weights, parameters=parameters, weight_order="yxcf") < TOLERANCE[torch.float16]


@pytest.mark.portable
@pytest.mark.parametrize("weight_order", ["fyxc", "yxcf"])
def test_every_candidate_is_right(weight_order: str) -> None:
    image, weights = torch.randn(1, 10, 11, 24).half(), torch.randn(72, 3, 3, 24).half()
    text = convolution_text((1, 10, 11, 24), 72, 3, weights=weight_order)
    module = ir.Module.parse(text)
    found = CONVOLUTION.candidates(KernelGraph.of(next(iter(functions(module)))), HOPPER)
    of_tma = {"tma"} if weight_order == "fyxc" else set()
    assert {parameters["engine"] for parameters in found} == {"wgmma", "mma"} | of_tma
    for parameters in found:
        got = answer_error(text, image, weights, parameters=parameters, weight_order=weight_order)
        assert got < TOLERANCE[torch.float16], parameters


@pytest.mark.portable
def test_f32_is_summed_by_fma() -> None:
    image, weights = torch.randn(2, 8, 8, 6), torch.randn(10, 3, 3, 6)
    text = convolution_text((2, 8, 8, 6), 10, 3, element="f32")
    assert answer_error(text, image, weights) < TOLERANCE[torch.float32]


@pytest.mark.portable
def test_what_a_window_is() -> None:
    module = ir.Module.parse(convolution_text((2, 9, 11, 16), 40, 3, stride=2))
    match = match_window(KernelGraph.of(next(iter(functions(module)))))
    assert match is not None
    assert (match.product.m, match.product.n, match.product.k) == (2 * 4 * 5, 40, 144)
    rows = [(digit.divisor, digit.size, digit.stride) for digit in match.image.row_digits]
    assert rows == [(20, 2, 9 * 11 * 16), (5, 4, 2 * 11 * 16), (1, 5, 2 * 16)]
    k = [(digit.divisor, digit.size, digit.stride) for digit in match.image.k_digits]
    assert k == [(48, 3, 11 * 16), (1, 48, 1)]  # the taps of a row and their channels lie side by side
    assert [(digit.size, digit.stride) for digit in match.weights.k_digits] == [(144, 1)]


def assembled(text: str, parameters: Parameters | None = None, arch: str = "sm_90a") -> str:
    """SASS; nothing is spilled, and ptxas has nothing to say about speed."""
    module = emitted(text, parameters, arch=arch)
    for function in list(functions(module)):
        function.operation.erase()
    run_steps(NVVM_STEPS, module)
    code, resources = assemble(CompilePtx(arch).translate(TranslateKernels().translate(module)).body, arch)
    assert all(found.spill_bytes == found.stack_bytes == 0 and not found.warning for found in resources.values())
    return sass_text(code)


@pytest.mark.target
@pytest.mark.parametrize(
    ("arch", "parameters", "instruction"),
    [("sm_80", None, "HMMA.16816.F32"), ("sm_90a", {**WGMMA, "columns": 128}, "HGMMA.64x128x16.F32")],
    ids=["sm_80", "sm_90a"],
)
def test_tensor_cores_wide_copies_and_no_spills(arch: str, parameters: Parameters | None, instruction: str) -> None:
    text = assembled(convolution_text((32, 30, 30, 128), 128, 3), parameters, arch)
    assert instruction in text
    assert re.search(r"LDGSTS\.E\.BYPASS\S*\.128", text)
    assert not re.search(r"LDGSTS\S*\.(64|32)\b", text)


@pytest.mark.target
@pytest.mark.parametrize(
    "parameters",
    [
        None,
        {**TMA, "rows": 256, "columns": 128, "multicast": "a"},
        {**TMA, "columns": 128, "split": 4},
        {**TMA, "columns": 160, "stages": 5},
    ],
    ids=["chosen", "image to both", "split", "160 features"],
)
def test_the_copy_engine_brings_pixels_and_weights(parameters: Parameters | None) -> None:
    text = assembled(convolution_text((32, 30, 30, 256), 256, 3, stride=2), parameters)
    assert "HGMMA.64x" in text and "LDGSTS" not in text
    assert re.search(r"UTMALDG\.4D\.IM2COL", text) and re.search(r"UTMALDG\.3D", text)
