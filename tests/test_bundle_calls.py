"""Calls of a loaded bundle: any layout and NaN, threads and futures, many calls, and a machine that has only the runtime."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pytest
import torch
from bundle_net import Net, build_net, drawn_net

import mlirstack as ms
from mlirstack.bundle.manifest import read_manifest
from mlirstack.bundle.store import read_bundle
from mlirstack.bundle.verify import verify
from mlirstack.errors import SignatureError
from mlirstack.targets.callable import CompiledFunction
from mlirstack.targets.iree.gpu import IreeCudaExecutable
from mlirstack.targets.iree.session import processor

pytestmark = pytest.mark.target


@pytest.fixture(scope="module")
def net() -> Net:
    return drawn_net()


@pytest.fixture(scope="module")
def built(net: Net, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_net(net, tmp_path_factory.mktemp("deploy") / "net.bundle")


def test_inputs_in_any_layout_and_nan_are_as_eager_has_them(built: Path, net: Net) -> None:
    model = ms.load(built)
    scale = torch.randn(8)
    storage = torch.randn(1 + 4 * 16)
    nan = torch.randn(4, 16)
    nan[1, 3], nan[2, 5] = float("nan"), float("inf")
    for x in (
        torch.randn(16, 4).t(),
        torch.randn(4, 32)[:, ::2],
        storage[1:].view(4, 16),
        nan,
        torch.randn(1, 16).expand(4, 16),
    ):
        expected = net(x, scale)
        found = model(x, scale)
        assert list(found) == ["y", "shifted", "offset", "scale"]
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value.detach(), rtol=1e-5, atol=1e-5, equal_nan=True)


def test_results_of_the_gpu_s_executable_never_share_memory(built: Path, net: Net) -> None:
    """How results leave IREE on a GPU, on IREE's processor device: DLPack out, a copy where memory is shared."""
    bundle = read_bundle(built)
    code, device = bundle.artifact.files["module.vmfb"], processor(1)
    executable = IreeCudaExecutable(
        code, bundle.signature, bundle.parameters, place=torch.device("cpu"), device_of_iree=device
    )
    function = CompiledFunction(executable, bundle.signature, bundle.parameters)
    x, scale = torch.randn(4, 16), torch.randn(8)
    given = scale.clone()
    found = function(x, given)
    for name, expected in net(x, scale).items():
        torch.testing.assert_close(found[name], expected.detach(), rtol=1e-5, atol=1e-5)
        found[name].zero_()
    assert torch.equal(given, scale)
    torch.testing.assert_close(function(x, scale)["shifted"], net(x, scale)["shifted"].detach(), rtol=1e-5, atol=1e-5)
    assert executable.copied_inputs == 0
    function(torch.randn(16, 4).t(), scale)
    assert executable.copied_inputs == 1


def test_arrays_go_in_and_come_out(built: Path, net: Net) -> None:
    import numpy as np

    x, scale = np.random.default_rng(0).standard_normal((3, 16), np.float32), np.ones(8, np.float32)
    x.flags.writeable = False
    found = ms.load(built)(x, scale)
    expected = net(torch.tensor(x), torch.tensor(scale))
    assert all(type(found[name]) is np.ndarray for name in expected)
    np.testing.assert_allclose(found["shifted"], expected["shifted"].detach().numpy(), rtol=1e-5, atol=1e-5)


def test_threads_futures_and_two_loads_do_not_meet(built: Path, net: Net) -> None:
    from concurrent.futures import ThreadPoolExecutor

    first, second = ms.load(built), ms.load(built, threads=2)
    scale = torch.randn(8)
    batches = [torch.randn(1 + i % 32, 16) for i in range(64)]
    expected = [net(x, scale)["y"].detach() for x in batches]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: (first if i % 2 else second)(batches[i], scale)["y"], range(64)))
    futures = [first.submit(x, scale) for x in batches]
    refused = first.submit(scale, scale)
    for got, future, wanted in zip(found, futures, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(future.result(30)["y"], wanted, rtol=1e-5, atol=1e-5)
    assert isinstance(refused.exception(30), SignatureError)
    first.close()


def test_a_model_that_was_called_in_the_background_goes_with_its_last_name(built: Path) -> None:
    model = ms.load(built)
    model.submit(torch.randn(4, 16), torch.randn(8)).result(30)
    (thread,) = (t for t in threading.enumerate() if t.name == f"mlirstack-{model.manifest.model}")
    function = weakref.ref(model.function)
    del model
    thread.join(30)
    gc.collect()
    assert not thread.is_alive() and function() is None


def test_ten_thousand_calls_need_no_more_memory(built: Path) -> None:
    model, x, scale = ms.load(built), torch.randn(4, 16), torch.randn(8)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    for _ in range(1000):
        model(x, scale)
    before = resident()
    for _ in range(10_000):
        model(x, scale)
    assert resident() - before < 2 << 20  # a leak of one result a call would be 2.5 MB


ALONE = """
import sys
import threading
import weakref
allowed = {allowed!r}
class Refuse:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in allowed or name.startswith("iree.compiler"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Refuse())
from pathlib import Path
import numpy as np
import mlirstack as ms
from mlirstack.bundle.verify import verify
model = ms.load({path!r})
x = np.load({inputs!r})
np.savez({outputs!r}, **model.submit(x["x"], x["scale"]).result())
assert verify(Path({path!r})).ok
try:
    import mlirstack.cli.main
except SystemExit as ended:
    assert ended.code == 3
else:
    raise AssertionError("no typer was missed")
"""
TORCH = (
    "torch",
    "torchgen",
    "functorch",
    "typing_extensions",
    "sympy",
    "mpmath",
    "networkx",
    "jinja2",
    "markupsafe",
    "filelock",
)


@pytest.mark.parametrize("more", [(), TORCH], ids=["numpy", "torch"])
def test_loading_needs_the_runtime_and_nothing_else(built: Path, net: Net, tmp_path: Path, more: tuple[str, ...]) -> None:
    """NumPy and its dtypes, safetensors, IREE's runtime, and torch where tensors are wanted: no other package is there."""
    import numpy as np

    x, scale = torch.randn(5, 16), torch.randn(8)
    np.savez(tmp_path / "in.npz", x=x.numpy(), scale=scale.numpy())
    names = {"path": str(built), "inputs": str(tmp_path / "in.npz"), "outputs": str(tmp_path / "out.npz")}
    allowed = ("mlirstack", "numpy", "ml_dtypes", "safetensors", "iree", *more)
    done = subprocess.run(
        [sys.executable, "-c", ALONE.format(allowed=allowed, **names)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "leaked" not in done.stderr  # what IREE's runtime says of models that outlive the interpreter
    with np.load(tmp_path / "out.npz") as found:
        for name, value in net(x, scale).items():
            np.testing.assert_allclose(found[name], value.detach().numpy(), rtol=1e-5, atol=1e-5)


def test_each_set_of_settings_is_tried_once(net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given may be one of the sets; the table stands in the manifest, and the fastest set is in the bundle."""
    sets = ({}, {"opt-level": "O2"}, {"data-tiling": "false"})
    monkeypatch.setattr("mlirstack.deploy.tune._SETS", {"iree-cpu": sets})
    path, inputs = tmp_path / "net.bundle", (torch.randn(4, 16), torch.randn(8))
    given = {"opt-level": "O2"}
    report = ms.build(net, inputs, targets=["iree-cpu:x86-64-v3"], path=path, settings=given, tune_sets=3)
    tried = report.targets[0].tried
    assert sorted(map(str, (one.settings for one in tried))) == sorted(map(str, (given, {**given, "data-tiling": "false"})))
    assert [one.median_s for one in tried] == sorted(one.median_s or 0.0 for one in tried)
    entry = read_manifest(path).artifacts[0]
    assert [one["settings"] for one in entry.metadata["tuning"]] == [one.settings for one in tried]
    is_tiled = "data-tiling" not in tried[0].settings
    assert f"--iree-opt-data-tiling={str(is_tiled).lower()}" in entry.metadata["flags"]
    assert verify(path).ok
