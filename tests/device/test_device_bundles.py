"""Bundles that another machine built, on this machine's GPU: golden answers, streams, memory, and a machine without torch.

MLIRSTACK_BUNDLES names the directory that ``python benchmarks/deploy_bundles.py build DIR`` filled; the calls by hand are
made of its ``dynamic_batch``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mlirstack as ms
from mlirstack.bundle.load import LoadedModel
from mlirstack.bundle.manifest import MANIFEST
from mlirstack.bundle.verify import verify
from mlirstack.errors import SignatureError

ROOT = os.environ.get("MLIRSTACK_BUNDLES")
pytestmark = pytest.mark.skipif(ROOT is None, reason="MLIRSTACK_BUNDLES is not set")

TARGETS = ("iree-cuda", "cuda")


def bundles() -> list[Any]:
    return [pytest.param(p.parent, id=p.parent.name) for p in sorted(Path(ROOT or "/nowhere").glob(f"*/{MANIFEST}"))]


@pytest.fixture(scope="module", params=TARGETS)
def model(request: pytest.FixtureRequest) -> LoadedModel:
    return ms.load(Path(ROOT or "") / "dynamic_batch", device=request.param)


def eager(model: LoadedModel, x: torch.Tensor) -> torch.Tensor:
    """What the bundle's own weights give in float64."""
    p = {name: tensor.double().to(x.device) for name, tensor in model.function.parameters.items()}  # type: ignore[attr-defined]
    hidden = torch.relu(nn.functional.linear(x.double(), p["layers.0.weight"], p["layers.0.bias"]))
    return torch.log_softmax(nn.functional.linear(hidden, p["layers.2.weight"], p["layers.2.bias"]), -1)


def right(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("bundle", bundles())
def test_golden_answers(bundle: Path) -> None:
    report = verify(bundle, device="cuda")
    assert report.ok, [check for check in report.checks if check.status == "failed"]


def test_the_best_target_is_chosen() -> None:
    best = ms.load(Path(ROOT or "") / "dynamic_batch")
    assert best.entry.target == "cuda" and best.device.startswith("cuda")


def test_inputs_come_from_the_current_stream_and_results_go_there(model: LoadedModel) -> None:
    """The input is written on a stream behind a long queue of work; whoever does not wait for it reads zeros."""
    busy = torch.randn(4096, 4096, device="cuda")
    good = torch.randn(64, 512, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x = torch.zeros(64, 512, device="cuda")
        for _ in range(20):
            busy = busy @ busy * 1e-4
        x.copy_(good)
        after = model(x) * 2
        future = model.submit(x)
    side.synchronize()
    right(after / 2, eager(model, good))
    right(future.result(60), eager(model, good))


def test_layouts_nan_and_sizes(model: LoadedModel) -> None:
    nan = torch.randn(3, 512, device="cuda")
    nan[1, 7] = float("nan")
    storage = torch.randn(1 + 5 * 512, device="cuda")
    for x in (torch.randn(512, 9, device="cuda").t(), storage[1:].view(5, 512), nan, torch.randn(1024, 512, device="cuda")):
        right(model(x), eager(model, x))


def test_threads(model: LoadedModel) -> None:
    inputs = [torch.randn(1 + i, 512, device="cuda") for i in range(24)]
    with ThreadPoolExecutor(4) as pool:
        for x, found in zip(inputs, pool.map(model, inputs), strict=True):
            right(found, eager(model, x))


def test_calls_in_the_background_keep_their_order_and_their_inputs(model: LoadedModel) -> None:
    """Many calls are under way at once; each sees its input as it was when it was submitted."""
    x = torch.empty(64, 512, device="cuda")
    inputs = [torch.randn(64, 512, device="cuda") for _ in range(32)]
    futures = []
    for value in inputs:
        futures.append(model.submit(value))
        x.copy_(value)  # work on the same stream, behind the call's inputs
    for value, future in zip(inputs, futures, strict=True):
        right(future.result(60), eager(model, value))


@pytest.mark.parametrize("target", TARGETS)
def test_a_model_stays_on_the_gpu_that_was_current_when_it_was_loaded(target: str) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    with torch.cuda.device(1):
        model = ms.load(Path(ROOT or "") / "dynamic_batch", device=target)
    assert model.device == "cuda:1"
    x = torch.randn(64, 512, device="cuda:1")
    for current in (1, 0):
        with torch.cuda.device(current):
            found = model(x)
            assert found.device == x.device and torch.cuda.current_device() == current
            right(found, eager(model, x))
            right(model.submit(x).result(60), eager(model, x))
    with pytest.raises(SignatureError, match=r"cuda:0"):
        model(x.to("cuda:0"))


def test_many_calls_need_no_more_memory(model: LoadedModel) -> None:
    """What is free is the device's, and others may take of it; a leak takes some of it every time."""
    x = torch.randn(64, 512, device="cuda")

    def taken(calls: int) -> int:
        torch.cuda.synchronize()
        before = torch.cuda.mem_get_info()[0]
        for _ in range(calls):
            model(x)
        torch.cuda.synchronize()
        return before - torch.cuda.mem_get_info()[0]

    taken(200)
    lost = [taken(4000) for _ in range(3)]
    assert min(lost) < 3 << 20, lost  # less than a kilobyte a call


WITHOUT_TORCH = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "torch_mlir") or name.startswith("iree.compiler"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Refuse())
from pathlib import Path
from mlirstack.bundle.verify import verify
report = verify(Path(sys.argv[1]), device="iree-cuda")
print([check for check in report.checks if check.status == "failed"])
sys.exit(0 if report.ok else 1)
"""


def test_no_torch_is_needed() -> None:
    command = [sys.executable, "-c", WITHOUT_TORCH, str(Path(ROOT or "") / "dynamic_batch")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
