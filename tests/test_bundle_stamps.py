"""Large data is hashed once and known again by its stamp: no change of it goes unnoticed, and no cache is needed."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import mlirstack as ms
from mlirstack.bundle import files as bundle_files
from mlirstack.bundle import stamps
from mlirstack.bundle.files import file_problems
from mlirstack.bundle.manifest import GOLDEN, MANIFEST, PACKED, PARAMETERS, read_manifest
from mlirstack.bundle.verify import verify
from mlirstack.errors import BundleError

pytestmark = pytest.mark.target


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stamps") / "net.bundle"
    ms.build(nn.Linear(64, 32), (torch.randn(16, 64),), targets=["cpu"], path=path)
    return path


@pytest.fixture
def copy(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy whose data is large and was not just written, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(bundle_files, "STAMPED_FROM", 0)
    for ticks in ("FINE", "COARSE"):
        monkeypatch.setattr(stamps, ticks, 0.0)
    return Path(shutil.copytree(built, tmp_path / "copy"))


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file has been hashed."""
    counted: Counter[str] = Counter()
    real = bundle_files.sha256

    def count(path: Path, first: int = 0, size: int | None = None) -> str:
        counted[path.name] += 1
        return real(path, first, size)

    monkeypatch.setattr(bundle_files, "sha256", count)
    return counted


def kept(path: Path) -> list[Path]:
    return sorted((path.parent / "cache").rglob("verified/*"))


def test_data_is_hashed_once_and_code_every_time(copy: Path, hashed: Counter[str]) -> None:
    for _ in range(3):
        ms.load(copy)
    assert hashed == {"main.o": 3, "main.ll": 3, PARAMETERS: 1, GOLDEN: 1}
    assert len(kept(copy)) == 2
    assert verify(copy).ok  # which believes no stamp
    assert hashed == {"main.o": 4, "main.ll": 4, PARAMETERS: 2, GOLDEN: 2}
    moved = copy.rename(copy.with_name("moved"))  # still the same files
    ms.load(moved)
    assert hashed[PARAMETERS] == 2


def test_what_is_built_here_is_loaded_without_hashing_it(tmp_path: Path, copy: Path, hashed: Counter[str]) -> None:
    model = nn.Linear(64, 32)
    report = ms.build(model, (torch.randn(16, 64),), targets=["cpu"], path=tmp_path / "net", settings={"prepack": "true"})
    assert report.manifest.data == {PARAMETERS, GOLDEN, f"cpu/{PACKED}"}
    hashed.clear()
    ms.load(tmp_path / "net")
    assert hashed == {"main.o": 1, "main.ll": 1}


def flip(file: Path, position: int = 500) -> None:
    with file.open("r+b") as stream:
        stream.seek(position)
        byte = stream.read(1)[0]
        stream.seek(position)
        stream.write(bytes([byte ^ 4]))


def flip_and_hide(file: Path) -> None:
    """As :func:`flip`, with the time of the last change as it was."""
    before = file.stat()
    flip(file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def flip_a_copy(file: Path) -> None:
    """Another file of the same name, size and time of the last change."""
    other = file.with_name("other")
    shutil.copy2(file, other)
    flip_and_hide(other)
    other.replace(file)


def flip_mapped(file: Path) -> None:
    import numpy as np

    mapped = np.memmap(file, np.uint8, mode="r+")
    mapped[500] ^= 4
    mapped.flush()


@pytest.mark.parametrize("damage", [flip, flip_and_hide, flip_a_copy, flip_mapped])
def test_what_changes_after_it_was_stamped_is_hashed_again(copy: Path, damage: object) -> None:
    assert callable(damage)
    ms.load(copy)
    damage(copy / PARAMETERS)
    with pytest.raises(BundleError, match=rf"{PARAMETERS} is damaged"):
        ms.load(copy)
    assert [(c.step, c.subject) for c in verify(copy).checks if c.status == "failed"] == [("files", PARAMETERS)]


def test_a_stamp_is_for_one_checksum(copy: Path, built: Path) -> None:
    """A file that is right for one manifest is not right for another."""
    ms.load(copy)
    state = stamps.FileState.of(copy / PARAMETERS)
    assert state is not None
    assert stamps.is_known(state, read_manifest(copy).files[PARAMETERS].sha256)
    assert not stamps.is_known(state, read_manifest(copy).files[GOLDEN].sha256)


def test_damaged_code_is_found_whatever_is_stamped(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_files, "is_known", lambda state, sha256: True)
    flip(copy / "cpu" / "main.o")
    with pytest.raises(BundleError, match=r"main\.o is damaged"):
        ms.load(copy)


def test_files_that_have_just_changed_get_no_stamp(
    copy: Path, hashed: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They could change again within one tick of the file system's clock."""
    monkeypatch.setattr(stamps, "FINE", 3600.0)
    monkeypatch.setattr(stamps, "COARSE", 7200.0)
    for count in (1, 2):
        ms.load(copy)
        assert hashed[PARAMETERS] == count and not kept(copy)


@pytest.mark.parametrize(
    ("changed_ns", "age_s", "settled"),
    [
        (123_456_789, 0.05, False),
        (123_456_789, 0.2, True),
        (0, 0.2, False),
        (0, 1.9, False),
        (0, 2.1, True),
        (500_000_000, 1, False),
    ],
)
def test_how_long_a_file_must_be_as_it_is(
    monkeypatch: pytest.MonkeyPatch, changed_ns: int, age_s: float, settled: bool
) -> None:
    """A tenth of a second where times have nanoseconds, two seconds where they may be as coarse as that."""
    changed = 1_800_000_000 * 10**9 + changed_ns
    found = SimpleNamespace(
        st_dev=1,
        st_ino=2,
        st_size=3,
        st_mtime_ns=changed,
        st_ctime_ns=changed,
        st_mtime=changed / 1e9,
        st_ctime=changed / 1e9,
    )
    monkeypatch.setattr(Path, "stat", lambda path: found)
    monkeypatch.setattr(time, "time", lambda: changed / 1e9 + age_s)
    state = stamps.FileState.of(Path("file"))
    assert state == stamps.FileState((1, 2, 3, changed, changed), settled)


def test_a_file_that_changes_while_it_is_hashed_gets_no_stamp(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = bundle_files.sha256

    def late(path: Path, first: int = 0, size: int | None = None) -> str:
        found = real(path, first, size)
        flip(path)
        return found

    monkeypatch.setattr(bundle_files, "sha256", late)
    assert not file_problems(copy, read_manifest(copy))
    assert not kept(copy)
    monkeypatch.setattr(bundle_files, "sha256", real)
    assert len(file_problems(copy, read_manifest(copy))) == 4


@pytest.mark.parametrize("place", ["a file", "nowhere", "no home"])
def test_no_cache_is_needed(copy: Path, hashed: Counter[str], monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    if place == "no home":
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("Could not determine home directory.")))
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", str(copy / MANIFEST) if place == "a file" else "/proc/none")
    ms.load(copy)
    ms.load(copy)
    assert hashed[PARAMETERS] == 2


def test_stamps_from_many_threads_and_old_ones(copy: Path) -> None:
    old = copy.parent / "cache" / "mlirstack" / "verified" / ("0" * 64)
    old.parent.mkdir(parents=True)
    old.touch()
    os.utime(old, (0, 0))
    manifest, failures = read_manifest(copy), []

    def check() -> None:
        try:
            failures.extend(file_problems(copy, manifest))
        except Exception as error:  # of a thread: looked at below
            failures.append(error)

    threads = [threading.Thread(target=check) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(kept(copy)) == 2 and old not in kept(copy)
