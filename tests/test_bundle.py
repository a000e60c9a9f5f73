"""Bundles on disk: what is written comes back, and what is damaged is refused before it runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from mlirstack import zoo
from mlirstack.bundle.manifest import read_manifest
from mlirstack.bundle.store import MANIFEST, Bundle, BundleInfo, read_bundle, write_bundle
from mlirstack.deploy.build import build_bundle
from mlirstack.errors import BundleError, MlirstackError, UsageError
from mlirstack.frontend.parameters import save_parameters
from mlirstack.lowering import LowerOptions, build_program, program_of
from mlirstack.targets.callable import CompiledFunction
from mlirstack.targets.registry import create_target


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of the small TinyMLP for cpu."""
    model = zoo.get("tiny_mlp_small")
    program = program_of(model.module, model.inputs)
    _, artifact, _ = build_program(program, LowerOptions("cpu"))
    path = tmp_path_factory.mktemp("bundles") / "net.bundle"
    write_bundle(path, artifact, program.signature, program.parameters, BundleInfo("net", "tosa", "TOSA first", {"a": "1"}))
    return path


def copy_of(built: Path, to: Path) -> Path:
    return Path(shutil.copytree(built, to / "copy"))


def function(bundle: Bundle) -> CompiledFunction:
    executable = create_target("cpu").load(bundle.artifact, bundle.signature, bundle.parameters)
    return CompiledFunction(executable, bundle.signature, bundle.parameters)


def test_what_is_read_runs_and_is_right(built: Path) -> None:
    bundle = read_bundle(built)
    model = zoo.get("tiny_mlp_small")
    torch.testing.assert_close(function(bundle)(*model.inputs), model.module(*model.inputs), rtol=1e-5, atol=1e-5)
    assert bundle.info == BundleInfo("net", "tosa", "TOSA first", {"a": "1"})


def test_every_damaged_file_is_refused(built: Path, tmp_path: Path) -> None:
    manifest = json.loads((built / MANIFEST).read_text())
    assert set(manifest["files"]) == {"cpu/main.o", "cpu/main.ll", "parameters.safetensors"}
    for name in manifest["files"]:
        bad = copy_of(built, tmp_path / name.replace("/", "-"))
        data = bytearray((bad / name).read_bytes())
        data[len(data) // 2] ^= 1
        (bad / name).write_bytes(data)
        with pytest.raises(BundleError, match=f"{name} is damaged"):
            read_bundle(bad)
        (bad / name).unlink()
        with pytest.raises(BundleError, match=f"{name} is missing"):
            read_bundle(bad)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "cannot be read"),
        ("{}", "cannot be read"),
        ('{"format_version": 99}', "format 99"),
        ('{"format_version": 2}', "is damaged"),
    ],
)
def test_damaged_manifests_are_refused(built: Path, tmp_path: Path, content: str, message: str) -> None:
    bad = copy_of(built, tmp_path)
    (bad / MANIFEST).write_text(content)
    with pytest.raises(BundleError, match=message):
        read_bundle(bad)


def test_a_directory_without_manifest_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="is not a bundle"):
        read_bundle(tmp_path)


def test_only_bundles_and_empty_directories_are_replaced(built: Path, tmp_path: Path) -> None:
    bundle = read_bundle(built)
    contents = (bundle.artifact, bundle.signature, bundle.parameters, bundle.info)
    taken = tmp_path / "taken"
    taken.mkdir()
    write_bundle(taken, *contents)
    write_bundle(taken, *contents)
    assert read_bundle(taken).info == bundle.info
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="not a bundle"):
        write_bundle(other, *contents)
    assert (other / "thesis.txt").read_text() == "years of work"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other", "taken"]


def test_tied_and_sliced_parameters_are_stored(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    whole = torch.arange(12.0).reshape(3, 4)
    parameters = {"a": whole, "tied": whole, "slice": whole[1], "turned": whole.t(), "empty": torch.empty(0, 3)}
    save_parameters(parameters, tmp_path / "p.safetensors")
    loaded = load_file(tmp_path / "p.safetensors")
    assert set(loaded) == set(parameters)
    for name, tensor in parameters.items():
        torch.testing.assert_close(loaded[name], tensor)
    save_parameters({}, tmp_path / "p.safetensors")
    assert not (tmp_path / "p.safetensors").exists()


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    reached: list[str] = []

    def compile_part(spec: str, settings: Mapping[str, str], part: Path, *, shared: bool) -> None:
        reached.append(spec)
        part.mkdir()
        (part / "half").write_text("written")
        raise BundleError("the disk is full")

    cases: list[tuple[list[str], dict[str, str], type[MlirstackError], str]] = [
        (["iree-cpu", "iree-cuda:sm_1"], {}, UsageError, "no architecture 'sm_1'"),
        (["inductor"], {}, UsageError, "'inductor' leaves nothing to deploy"),
        (["cpu", "cpu"], {}, UsageError, "given twice"),
        ([], {}, UsageError, "no target given"),
        (["cpu", "iree-cpu"], {"opt-levle": "O2"}, UsageError, "a setting 'opt-levle'"),
        (["cpu", "iree-cpu"], {"opt-level": "O2"}, BundleError, "the disk is full"),
    ]
    for targets, settings, error, message in cases:
        with pytest.raises(error, match=message):
            build_bundle(tmp_path / "net", targets, compile_part, settings=settings)
        assert list(tmp_path.iterdir()) == []
    assert reached == ["cpu"]


def test_a_full_disk_and_an_interruption_leave_the_earlier_bundle(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    from mlirstack.bundle import store
    from mlirstack.targets.base import Artifact

    path = Path(shutil.copytree(built, tmp_path / "net"))
    before = read_manifest(path)
    info = store.BundleInfo("net", "tosa", "", {})

    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    for failure, expected in ((full, BundleError), (interrupted, KeyboardInterrupt)):
        monkeypatch.setattr(store, "write_manifest", failure)
        with pytest.raises(expected):
            store.write_bundle(path, Artifact("cpu", {"a": b"1"}), before.signature, {}, info)
        assert [p.name for p in tmp_path.iterdir()] == ["net"]
        assert read_manifest(path) == before
    with pytest.raises(BundleError, match="No space left"):
        monkeypatch.setattr(store, "write_manifest", full)
        store.write_bundle(tmp_path / "new", Artifact("cpu", {}), before.signature, {}, info)
    assert [p.name for p in tmp_path.iterdir()] == ["net"]
