"""Damaged, foreign and misused bundles: refused by name before native code sees them, never a wrong answer or a crash."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mlirstack as ms
from mlirstack.bundle import files as bundle_files
from mlirstack.bundle.manifest import GOLDEN, MANIFEST, PARAMETERS, Manifest, read_manifest, write_manifest
from mlirstack.bundle.store import read_bundle
from mlirstack.bundle.verify import VerifyReport, verify
from mlirstack.errors import BundleError, SignatureError, TargetUnavailableError
from mlirstack.targets.callable import CompiledFunction
from mlirstack.targets.iree.bytecode import bytecode_version
from mlirstack.targets.iree.gpu import IreeCudaExecutable
from mlirstack.targets.iree.session import processor
from mlirstack.targets.requirements import Requirements

pytestmark = pytest.mark.target


class Net(nn.Module):
    """Weights, a buffer, a dynamic batch; two results that could share memory with a parameter and with an input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 8)
        self.register_buffer("offset", torch.arange(8.0))

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        y = torch.relu(self.layer(x)) * scale
        return {"y": y, "shifted": y + self.offset, "offset": self.offset.view(2, 4), "scale": scale.view(2, 4)}


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module")
def built(net: Net, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("deploy") / "net.bundle"
    dynamic = ({0: torch.export.Dim("batch", min=1, max=32)}, None)
    inputs = (torch.randn(4, 16), torch.randn(8))
    report = ms.build(net, inputs, targets=["iree-cpu:x86-64-v3"], path=path, dynamic_shapes=dynamic)
    assert report.size == sum(f.stat().st_size for f in path.rglob("*") if f.is_file() and f.name != MANIFEST)
    return path


@pytest.fixture
def copy(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "copy"))


def failed(report: VerifyReport) -> list[tuple[str, str]]:
    return [(check.step, check.subject) for check in report.checks if check.status == "failed"]


def changed(path: Path, edit: Callable[[Manifest], Manifest]) -> None:
    """The manifest as a builder on another machine would have written it: edited, with a right checksum."""
    write_manifest(edit(read_manifest(path)), path)


def with_requirements(path: Path, **fields: Any) -> None:
    def edit(manifest: Manifest) -> Manifest:
        entry = manifest.artifacts[0]
        requirements = dataclasses.replace(entry.requirements, **fields)
        return dataclasses.replace(manifest, artifacts=(dataclasses.replace(entry, requirements=requirements),))

    changed(path, edit)


def guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, whatever is handed to IREE's runtime fails the test."""
    import iree.runtime as rt

    def refuse(*arguments: Any) -> None:
        raise AssertionError("native code was given a damaged bundle")

    monkeypatch.setattr(rt.VmModule, "copy_buffer", refuse)


def test_flipped_bits_anywhere_are_found(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guard(monkeypatch)
    generator = random.Random(0)
    for file in sorted(f for f in copy.rglob("*") if f.is_file()):
        whole = file.read_bytes()
        for _ in range(12):
            position, bit = generator.randrange(len(whole)), generator.randrange(8)
            bad = bytearray(whole)
            bad[position] ^= 1 << bit
            file.write_bytes(bad)
            name = file.relative_to(copy).as_posix()
            if name == MANIFEST and bad[position : position + 1].isspace() and whole[position : position + 1].isspace():
                continue  # one kind of space for another changes nothing
            with pytest.raises(BundleError, match=r"damaged|cannot be read|has format"):
                ms.load(copy)
            ((step, subject),) = failed(verify(copy))
            assert (step, subject) == (("manifest", str(copy)) if name == MANIFEST else ("files", name))
        file.write_bytes(whole)
    monkeypatch.undo()
    assert verify(copy).ok


def test_truncated_and_missing_files_are_named(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guard(monkeypatch)
    module = "iree-cpu-x86-64-v3/module.vmfb"
    for name in (module, PARAMETERS, GOLDEN, MANIFEST):
        whole = (copy / name).read_bytes()
        for length in (0, 1, len(whole) // 2, len(whole) - 1):
            if name == MANIFEST and length == len(whole) - 1:
                continue  # the last newline
            (copy / name).write_bytes(whole[:length])
            with pytest.raises(BundleError, match=name):
                ms.load(copy)
        (copy / name).unlink()
        with pytest.raises(BundleError, match=f"{name} is missing" if name != MANIFEST else f"no {MANIFEST}"):
            ms.load(copy)
        (copy / name).write_bytes(whole)
    # What is trusted is not read, but its size still has to be right.
    (copy / PARAMETERS).write_bytes((copy / PARAMETERS).read_bytes() + b"x")
    with pytest.raises(BundleError, match=r"the manifest says \d+"):
        ms.load(copy, trust_parameters=True)


def test_parameters_of_another_bundle_are_refused(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlirstack.frontend.parameters import save_parameters

    guard(monkeypatch)
    other = {
        name: torch.zeros(shape) for name, shape in {"layer.weight": (8, 16), "layer.bias": (8,), "offset": (8,)}.items()
    }
    save_parameters(other, copy / PARAMETERS)
    with pytest.raises(BundleError, match=r"parameters\.safetensors is damaged"):
        ms.load(copy)


@pytest.mark.parametrize(
    ("fields", "step", "reason", "remedy"),
    [
        ({"machine": "aarch64"}, "arch", "is for aarch64, this machine is", "run it on aarch64"),
        ({"features": ("avx2", "avx1024")}, "arch", "lacks: avx1024", "build for"),
        ({"bytecode": (18, 0)}, "versions", "bytecode 18.0; the installed IREE runtime reads 17.0", "iree-base-runtime"),
        ({"bytecode": (17, 1)}, "versions", "bytecode 17.1", "iree-base-runtime"),
        ({"packages": {"iree-base-runtime": ">=99"}}, "versions", "needs >=99", "pip install 'iree-base-runtime>=99'"),
        ({"packages": {"no-such-package": ">=1"}}, "versions", "is not installed", "pip install 'no-such-package>=1'"),
        ({"device": "cuda", "machine": None}, "arch", "CUDA", "NVIDIA"),
    ],
)
def test_other_machines_and_versions_are_told_apart(
    copy: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], step: str, reason: str, remedy: str
) -> None:
    if fields.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has what is asked for")
    with_requirements(copy, **fields)
    guard(monkeypatch)
    with pytest.raises(TargetUnavailableError, match=r"no artifact of the bundle runs on this machine") as raised:
        ms.load(copy)
    assert reason in raised.value.message
    report = verify(copy, device="iree-cpu")
    (check,) = [check for check in report.checks if check.status == "failed"]
    assert check.step == step and reason in check.detail and remedy in (check.remedy or "")
    assert not report.ok and not verify(copy).ok


def test_a_newer_module_is_refused_whatever_the_manifest_says(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = copy / "iree-cpu-x86-64-v3" / "module.vmfb"
    newer = bytearray(module.read_bytes())
    newer = newer.replace(struct.pack("<I", 17 << 16), struct.pack("<I", 18 << 16), 1)
    assert bytecode_version(bytes(newer)) == (18, 0)
    module.write_bytes(newer)
    import hashlib

    def edit(manifest: Manifest) -> Manifest:
        entry = manifest.artifacts[0]
        digest = hashlib.sha256(newer).hexdigest()
        entry = dataclasses.replace(entry, metadata={**entry.metadata, "sha256": digest})
        return dataclasses.replace(manifest, artifacts=(entry,), files=bundle_files.entries(copy))

    changed(copy, edit)
    guard(monkeypatch)
    with pytest.raises(TargetUnavailableError, match=r"bytecode 18\.0"):
        ms.load(copy)


def test_answers_that_left_their_tolerance_fail(copy: Path) -> None:
    """A bundle in which all checksums are right, and the weights are those of another training."""
    from mlirstack.frontend.parameters import save_parameters

    stored = ms.load(copy).function.parameters
    save_parameters({name: tensor * 1.001 for name, tensor in stored.items()}, copy / PARAMETERS)
    changed(copy, lambda manifest: dataclasses.replace(manifest, files=bundle_files.entries(copy)))
    report = verify(copy)
    assert [step for step, _ in failed(report)] == ["golden", "golden"]  # both batch sizes
    assert "relative L2 error" in report.checks[-1].detail


def test_paths_out_of_the_bundle_are_refused(copy: Path) -> None:
    def edit(manifest: Manifest) -> Manifest:
        return dataclasses.replace(manifest, files={**manifest.files, "../secret": next(iter(manifest.files.values()))})

    changed(copy, edit)
    with pytest.raises(BundleError, match="outside of the bundle"):
        ms.load(copy)


def test_calls_that_do_not_fit_are_refused_by_name(built: Path) -> None:
    model, x, scale = ms.load(built), torch.randn(4, 16), torch.randn(8)
    wrong: list[tuple[tuple[Any, ...], str]] = [
        ((x,), "value"),
        ((x, scale, scale), "3 given"),
        ((x.double(), scale), "'x' has dtype float64, expected float32"),
        ((x[:, :8], scale), "'x' has shape"),
        ((torch.randn(33, 16), scale), "dimension 'batch' is 33, allowed: 1 to 32"),
        ((x[0], scale), "'x' has shape"),
        ((x, 2.0), "'scale' must be a tensor"),
        (([x], scale), "'x' must be a tensor, not list"),
    ]
    for arguments, message in wrong:
        with pytest.raises(SignatureError, match=message.replace("(", r"\(")):
            model(*arguments)


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
blocked = {blocked!r}
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if any(name == b or name.startswith(b + ".") for b in blocked):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Refuse())
import numpy as np
import mlirstack as ms
model = ms.load({path!r})
x = np.load({inputs!r})
out = model(x["x"], x["scale"])
np.savez({outputs!r}, **out)
from pathlib import Path
from mlirstack.bundle.verify import verify
assert verify(Path({path!r})).ok
if "torch" in blocked:
    from mlirstack.cli.bench import bench
    try:
        bench(Path({path!r}))
    except SystemExit as ended:
        assert ended.code == 3
for name in ("torch_mlir", "iree.compiler", "llvmlite", *blocked):
    assert name not in sys.modules, name
"""


@pytest.mark.parametrize("without", [("torch_mlir", "iree.compiler"), ("torch_mlir", "iree.compiler", "torch")])
def test_loading_needs_no_compiler_and_no_torch(built: Path, net: Net, tmp_path: Path, without: tuple[str, ...]) -> None:
    import numpy as np

    x, scale = torch.randn(5, 16), torch.randn(8)
    np.savez(tmp_path / "in.npz", x=x.numpy(), scale=scale.numpy())
    names = {"path": str(built), "inputs": str(tmp_path / "in.npz"), "outputs": str(tmp_path / "out.npz")}
    code = ALONE.format(blocked=without, **names)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "out.npz") as found:
        for name, value in net(x, scale).items():
            np.testing.assert_allclose(found[name], value.detach().numpy(), rtol=1e-5, atol=1e-5)


def test_the_manifest_says_what_decides(built: Path) -> None:
    manifest = read_manifest(built)
    data = json.loads((built / MANIFEST).read_text())
    assert data["format_version"] == 2
    (entry,) = manifest.artifacts
    assert entry.requirements == Requirements(
        machine="x86_64",
        features=entry.requirements.features,
        packages={"iree-base-runtime": ">=3.13"},
        bytecode=(17, 0),
    )
    assert {"avx2", "fma"} <= set(entry.requirements.features)
    assert "--iree-llvmcpu-target-cpu=x86-64-v3" in entry.metadata["flags"]
    assert entry.metadata["compiler"].startswith("iree-base-compiler 3.13")
    assert manifest.signature.dynamic == {"batch": (1, 32)}
    assert [case["name"] for case in data["golden"]["cases"]] == ["example", "batch=1"]
    assert data["golden"]["precision"] == "float64"
    assert data["golden"]["cases"][0]["outputs"][0]["tolerance"] == 1e-5
