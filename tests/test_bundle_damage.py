"""Damaged, foreign and misused bundles: refused by name before native code sees them, never a wrong answer or a crash."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from bundle_net import build_net, drawn_net

import mlirstack as ms
from mlirstack.bundle import files as bundle_files
from mlirstack.bundle import manifest as bundle_manifest
from mlirstack.bundle.manifest import GOLDEN, MANIFEST, PARAMETERS, Manifest, read_manifest, write_manifest
from mlirstack.bundle.select import candidates, reasons
from mlirstack.bundle.verify import VerifyReport, verify
from mlirstack.errors import BundleError, SignatureError, TargetUnavailableError
from mlirstack.targets.iree.bytecode import bytecode_version
from mlirstack.targets.requirements import Requirements

pytestmark = pytest.mark.target


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_net(drawn_net(), tmp_path_factory.mktemp("deploy") / "net.bundle")


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


def test_large_files_are_checked_in_chunks(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them by a checksum of its own; that of the whole file stands beside them, for other programs."""
    for module in (bundle_files, bundle_manifest):
        monkeypatch.setattr(module, "CHUNK", 100)
    copy = Path(shutil.copytree(built, tmp_path / "copy"))
    changed(copy, lambda manifest: dataclasses.replace(manifest, files=bundle_files.entries(copy)))
    entry = read_manifest(copy).files[PARAMETERS]
    whole = (copy / PARAMETERS).read_bytes()
    assert entry.sha256 == hashlib.sha256(whole).hexdigest()
    assert entry.chunks == tuple(hashlib.sha256(whole[at : at + 100]).hexdigest() for at in range(0, len(whole), 100))
    assert len(entry.chunks) > 2 and verify(copy).ok
    for position in (0, 99, 100, len(whole) - 1):
        (copy / PARAMETERS).write_bytes(whole[:position] + bytes((whole[position] ^ 4,)) + whole[position + 1 :])
        with pytest.raises(BundleError, match=f"damaged .* from byte {position // 100 * 100} on"):
            ms.load(copy)
    short = dataclasses.replace(entry, chunks=entry.chunks[:-1])
    changed(copy, lambda manifest: dataclasses.replace(manifest, files={**manifest.files, PARAMETERS: short}))
    with pytest.raises(BundleError, match="cannot be read"):
        ms.load(copy)


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


def test_a_target_that_is_asked_for_is_what_of_it_runs_here(copy: Path) -> None:
    """A bundle for many machines: one of them verifies its own part; what was named itself must run."""

    def edit(manifest: Manifest) -> Manifest:
        (entry,) = manifest.artifacts
        others = [
            dataclasses.replace(entry, spec=f"iree-cpu:{m}", requirements=dataclasses.replace(entry.requirements, machine=m))
            for m in ("aarch64", "riscv64")
        ]
        return dataclasses.replace(manifest, artifacts=(*others, entry))

    changed(copy, edit)
    for device in (None, "cpu", "iree-cpu", "iree-cpu:x86-64-v3"):
        assert verify(copy, device=device).ok, device
    assert failed(verify(copy, device="iree-cpu:riscv64")) == [("arch", "iree-cpu:riscv64")]
    assert reasons(candidates(read_manifest(copy))[:2]).startswith("iree-cpu:aarch64: the code is for aarch64")


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


def test_the_manifest_says_what_decides(built: Path) -> None:
    manifest = read_manifest(built)
    data = json.loads((built / MANIFEST).read_text())
    assert data["format_version"] == 3
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
