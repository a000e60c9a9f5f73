"""Models as PT2E quantisation leaves them, by torchao's own flow and quantizers: the same codes, so the same answers.

They need torchao, which a plain test installation leaves out.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

import mlirstack as ms

pytest.importorskip("torchao", reason="needs torchao")


class Net(nn.Module):
    """A convolution and a linear layer."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.linear = nn.Linear(8, 4)

    def forward(self, x):
        return self.linear(torch.relu(self.conv(x)).mean((2, 3)))


def x86(dynamic):
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as library

    return library.X86InductorQuantizer().set_global(
        library.get_default_x86_inductor_quantization_config(is_dynamic=dynamic)
    )  # fmt: skip


def xnnpack(dynamic):
    from torchao.testing.pt2e import _xnnpack_quantizer as library

    return library.XNNPACKQuantizer().set_global(
        library.get_symmetric_quantization_config(is_per_channel=True, is_dynamic=dynamic)
    )


@pytest.mark.target
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("quantizer", [x86, xnnpack])
@pytest.mark.filterwarnings("ignore")
def test_a_quantised_model_gives_eager_s_answer(quantizer, dynamic):
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    torch.manual_seed(0)
    inputs = [torch.randn(2, 3, 8, 8) for _ in range(3)]
    prepared = prepare_pt2e(torch.export.export(Net().eval(), (inputs[0],)).module(), quantizer(dynamic))
    for x in inputs:
        prepared(x)
    model = convert_pt2e(prepared)
    names = {str(node.target).partition(".")[2] for node in model.graph.nodes if "quantized_decomposed" in str(node.target)}
    assert "quantize_per_tensor.tensor" in names if dynamic else "quantize_per_tensor.default" in names
    function = ms.compile(model, (inputs[0],))
    for x in inputs:
        # A code that is off by one would show as a hundredth.
        torch.testing.assert_close(function(x), model(x), rtol=1e-6, atol=1e-6)
