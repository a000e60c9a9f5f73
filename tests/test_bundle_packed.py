"""Parameters that are packed when a bundle is built: what loads reads them, right, undamaged, and nothing in their place."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import mlirstack as ms
from mlirstack.bundle import store
from mlirstack.bundle.files import entries
from mlirstack.bundle.manifest import PACKED, PARAMETERS, Manifest, read_manifest, write_manifest
from mlirstack.bundle.parameters import map_parameters
from mlirstack.bundle.verify import verify
from mlirstack.deploy import build as deploy_build
from mlirstack.deploy import tune
from mlirstack.deploy.profile import profile
from mlirstack.errors import BundleError, UsageError
from mlirstack.frontend.parameters import TensorSpec, create_tensors, save_parameters
from mlirstack.targets.registry import create_target

pytestmark = pytest.mark.target

IREE, CROSS = "iree-cpu:x86-64-v3", "iree-cpu:aarch64"
AHEAD = {"prepack": "true"}


class Net(nn.Module):
    """Two products whose weights are packed, a table that is read as it is, a buffer that the model itself updates."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(48, 64)
        self.first, self.second = nn.Linear(64, 128), nn.Linear(128, 32)
        self.register_buffer("calls", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1.0)
        return self.second(torch.relu(self.first(self.table(x)))) + self.calls[0]


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


X = (torch.arange(16) * 5 % 48,)


@pytest.fixture(scope="module")
def built(net: Net, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "net.bundle"
    ms.build(net, X, targets=[IREE, CROSS, "cpu"], path=path, settings=AHEAD)
    return path


@pytest.fixture
def copy(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "copy"))


def eager(net: Net, calls: int = 1) -> torch.Tensor:
    with torch.no_grad():
        return net.second(torch.relu(net.first(net.table(X[0])))) + float(calls)


def rewritten(path: Path, parameters: dict[str, torch.Tensor], file: str) -> None:
    """The bundle with another file of tensors, and a manifest that says so."""
    save_parameters(parameters, path / file)
    manifest = read_manifest(path)
    write_manifest(dataclasses.replace(manifest, files=entries(path)), path)


def tensors(file: Path) -> dict[str, torch.Tensor]:
    return {name: mapped.tensor().clone() for name, mapped in map_parameters(file).items()}


@pytest.mark.parametrize("target", [IREE, "cpu"])
def test_what_is_packed_is_what_runs(net: Net, copy: Path, target: str) -> None:
    """Without the weights themselves the answers are the same; without the others they are not."""
    assert verify(copy).ok
    stored = tensors(copy / PARAMETERS)
    assert stored.keys() == {*net.state_dict()} and torch.equal(stored["first.weight"], net.first.weight)
    rewritten(copy, stored | {"first.weight": torch.zeros(128, 64), "second.weight": torch.zeros(32, 128)}, PARAMETERS)
    model = ms.load(copy, device=target)
    for calls in (1, 2):
        torch.testing.assert_close(model(*X), eager(net, calls))
    rewritten(copy, stored | {"table.weight": torch.zeros(48, 64)}, PARAMETERS)
    assert not torch.allclose(ms.load(copy, device=target)(*X), eager(net))


def test_packed_weights_hold_every_weight_once(net: Net, built: Path) -> None:
    """Panels of some rows, one after the other: those of our kernels, and those of IREE's for another machine than this."""
    manifest = read_manifest(built)
    weight = net.first.weight.detach().numpy()
    for spec, widths in ((IREE, (8, 16, 32, 64)), (CROSS, (8,))):
        assert manifest[spec].packed == f"{store.file_name(spec)}/{PACKED}"
        assert "table.weight" in manifest[spec].metadata["reads"] and "first.weight" not in manifest[spec].metadata["reads"]
        (mapped,) = map_parameters(built / str(manifest[spec].packed)).values()
        panels = [weight.reshape(-1, width, 64).transpose(0, 2, 1).tobytes() for width in widths]
        assert any(mapped.contents.tobytes().find(panel) % 64 == 0 for panel in panels), spec
        assert mapped.contents.size <= sum(p.nbytes for m in (net.first, net.second) for p in m.parameters())
    (cpu,) = [
        m.tensor() for m in map_parameters(built / str(manifest["cpu"].packed)).values() if m.contents.size == 4 * 128 * 64
    ]
    assert torch.equal(cpu.flatten().sort().values, net.first.weight.flatten().sort().values)


def test_arrays_read_it_too(net: Net, built: Path) -> None:
    manifest = read_manifest(built)
    artifact = store.artifact_of(built, manifest[IREE])
    arrays = {name: mapped.array() for name, mapped in store.mapped_parameters(built, manifest).items()}
    run = create_target(IREE).load_arrays(artifact, manifest.signature, arrays).run
    np.testing.assert_allclose(run([X[0].numpy()])[1], eager(net).numpy(), rtol=1e-5, atol=1e-5)


def test_the_profile_is_given_it_as_well(built: Path) -> None:
    assert len(profile(built, device=IREE)) >= 2


def test_damage_is_found_before_anything_is_loaded(copy: Path, built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("a target was given a damaged bundle")

    monkeypatch.setattr("mlirstack.bundle.load.create_target", refuse)
    packed = copy / str(read_manifest(copy)[IREE].packed)
    whole = packed.read_bytes()
    for bad in (whole[:-1], whole[:2000] + bytes([whole[2000] ^ 16]) + whole[2001:], (built / PARAMETERS).read_bytes()):
        packed.write_bytes(bad)
        with pytest.raises(BundleError, match=rf"{PACKED} is damaged"):
            ms.load(copy)
    packed.unlink()
    with pytest.raises(BundleError, match=rf"{PACKED} is missing"):
        ms.load(copy)
    packed.write_bytes(whole)
    monkeypatch.undo()
    assert verify(copy).ok

    def without_checksum(manifest: Manifest) -> Manifest:
        return dataclasses.replace(manifest, files={n: e for n, e in manifest.files.items() if not n.endswith(PACKED)})

    write_manifest(without_checksum(read_manifest(copy)), copy)
    with pytest.raises(BundleError, match="has no checksum"):
        ms.load(copy)


def test_packed_parameters_of_another_object_are_refused(copy: Path) -> None:
    packed = str(read_manifest(copy)["cpu"].packed)
    stored = tensors(copy / packed)
    rewritten(copy, {name: tensor.flatten()[:-1].clone() for name, tensor in stored.items()}, packed)
    with pytest.raises(BundleError, match="not those of this object"):
        ms.load(copy)


def test_large_parameters_are_packed_unless_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(64, 32)
    x = torch.randn(16, 64)

    def packed(**settings: str) -> list[str | None]:
        report = ms.build(model, (x,), targets=["cpu"], path=tmp_path / "net", settings=settings)
        torch.testing.assert_close(ms.load(tmp_path / "net")(x), model(x))
        return [entry.packed for entry in report.manifest.artifacts]

    assert packed() == [None]
    monkeypatch.setattr(deploy_build, "PREPACK_FROM", (64 + 1) * 32 * 4)
    assert packed() == [f"cpu/{PACKED}"]
    shutil.move(tmp_path / "net", tmp_path / "packed")
    assert packed(prepack="false") == [None]
    # What tuning keeps is what was packed for the code that it keeps.
    for best, part in (("net", "packed"), ("packed", "net")):
        copy, kept = (shutil.copytree(tmp_path / name, tmp_path / f"{name}-{best}") for name in (best, part))
        assert tune._keep(copy, kept, ()) == kept and verify(kept).ok
        assert read_manifest(kept).files.keys() == read_manifest(tmp_path / best).files.keys()
    with pytest.raises(UsageError, match="target 'cpu': prepack is true or false, not 'maybe'"):
        packed(prepack="maybe")


def test_it_is_packed_at_load_where_nobody_has() -> None:
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU())
    x = torch.randn(4, 64)
    compiled = ms.compile(model, (x,), target="iree-cpu", settings=AHEAD)
    torch.testing.assert_close(compiled(x), model(x))


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(BundleError, match="No space left"):
        ms.build(nn.Linear(64, 32), (torch.randn(16, 64),), targets=["cpu"], path=tmp_path / "net", settings=AHEAD)
    assert not list(tmp_path.iterdir())


def test_tensors_that_are_yet_to_be_computed_have_their_place(tmp_path: Path) -> None:
    """Aligned, in the order of their sizes' remainders; files of nothing, too."""
    specs = {
        "odd": TensorSpec("uint8", (3,), 3),
        "empty": TensorSpec("float32", (0, 4), 0),
        "f": TensorSpec("float32", (2, 8), 64),
    }
    made = create_tensors(specs, tmp_path / "some")
    assert made["f"].ctypes.data % 64 == 0 and made["empty"].size == 0
    made["f"].view(np.float32)[:] = np.arange(16)
    made["odd"][:] = 7
    stored = tensors(tmp_path / "some")
    assert torch.equal(stored["f"], torch.arange(16.0).reshape(2, 8)) and stored["odd"].tolist() == [7, 7, 7]
    assert create_tensors({"empty": specs["empty"]}, tmp_path / "none")["empty"].size == 0
    assert tensors(tmp_path / "none")["empty"].shape == (0, 4)
