"""Files of a bundle: written aside and moved in place when complete, checked by size and SHA-256 before they are read."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mlirstack.bundle.manifest import CHUNK, MANIFEST, FileEntry, Manifest
from mlirstack.bundle.stamps import FileState, is_known, remember
from mlirstack.errors import BundleError, UsageError

STAMPED_FROM = 1 << 20  # bytes; less is hashed in a millisecond
_BLOCK = 1 << 20  # bytes that are read at once, into a processor's own cache


@dataclass(frozen=True)
class FileProblem:
    """A file that is not what the manifest says."""

    name: str
    reason: str

    def error(self, path: Path) -> BundleError:
        """The problem as an error of the bundle at ``path``."""
        return BundleError(f"bundle {path}: {self.name} {self.reason}", hint="copy or build the bundle again")


def check_place(path: Path) -> None:
    """:class:`UsageError` where ``path`` is anything but free, an empty directory, or a bundle."""
    if path.exists() and not (path / MANIFEST).is_file() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} exists and is not a bundle", hint="name a new directory")


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """A directory to write a bundle into, beside ``path``; it takes its place when the block ends without an error.

    An earlier bundle at ``path`` is replaced, anything else there is refused.  A process that is killed meanwhile leaves a
    hidden directory without a manifest, nothing that looks like a bundle.
    """
    check_place(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    except OSError as error:
        raise UsageError(f"cannot write to {path.parent}: {error.strerror}") from error
    try:
        yield work
        _synchronize(work)
        if path.exists():
            earlier = work.with_name(work.name + "-earlier")
            path.rename(earlier)
            work.rename(path)
            shutil.rmtree(earlier)
        else:
            work.rename(path)
        path.chmod(0o755 & ~_umask())
    except OSError as error:
        raise BundleError(
            f"cannot write bundle {path}: {error.strerror}", hint="free space, or name another place"
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def entries(directory: Path) -> dict[str, FileEntry]:
    """Every file below ``directory`` but the manifest, with size and checksums."""
    files = sorted(f for f in directory.rglob("*") if f.is_file() and f.name != MANIFEST)
    with _hashing() as pool:
        return {f.relative_to(directory).as_posix(): _entry(f, pool) for f in files}


def file_problems(
    path: Path, manifest: Manifest, *, unread: frozenset[str] = frozenset(), afresh: bool = False
) -> list[FileProblem]:
    """What is missing, cut short, or damaged; of the files in ``unread`` only the size is looked at.

    Code is hashed every time, and so are small files.  Large data is hashed where it has changed since it was found to be
    right (:mod:`mlirstack.bundle.stamps`), or where all is to be looked at ``afresh``.
    """
    found = {name: _size_problem(path / name, entry) for name, entry in manifest.files.items()}
    asked = {name: entry for name, entry in manifest.files.items() if found[name] is None and name not in unread}
    before = {name: state for name in _stamped(manifest) & asked.keys() if (state := FileState.of(path / name))}
    known = set() if afresh else {name for name, state in before.items() if is_known(state, asked[name].sha256)}
    parts = [(name, *part) for name, entry in asked.items() if name not in known for part in entry.parts()]
    with _hashing() as pool:
        reasons = pool.map(lambda part: _part_problem(path / part[0], *part[1:]), parts)
        for (name, *_), reason in zip(parts, reasons, strict=True):
            found[name] = found[name] or reason
    for name in before.keys() - known:
        if found[name] is None:
            remember(path / name, before[name], asked[name].sha256)
    return [FileProblem(name, reason) for name, reason in found.items() if reason]


def stamp(path: Path, manifest: Manifest) -> None:
    """Stamp what has just been written and hashed: to load it does not hash it again."""
    for name in _stamped(manifest):
        state = FileState.of(path / name)
        if state:
            remember(path / name, state, manifest.files[name].sha256)


def _stamped(manifest: Manifest) -> set[str]:
    """The files that are hashed once for each state of theirs."""
    return {name for name, entry in manifest.files.items() if name in manifest.data and entry.size >= STAMPED_FROM}


def sha256(path: Path, first: int = 0, size: int | None = None) -> str:
    """SHA-256 of a file, or of ``size`` bytes of it, in hexadecimal."""
    left = path.stat().st_size - first if size is None else size
    digest, block = hashlib.sha256(), memoryview(bytearray(min(left, _BLOCK)))
    with path.open("rb", buffering=0) as file:
        file.seek(first)
        while left and (count := file.readinto(block[:left])):
            digest.update(block[:count])
            left -= count
    return digest.hexdigest()


def _hashing() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(32, os.cpu_count() or 1))  # hashing releases the GIL


def _entry(file: Path, pool: ThreadPoolExecutor) -> FileEntry:
    size = file.stat().st_size
    whole = pool.submit(sha256, file)
    firsts = range(0, size, CHUNK) if size > CHUNK else ()
    chunks = pool.map(lambda first: sha256(file, first, CHUNK), firsts)
    return FileEntry(size, whole.result(), tuple(chunks))


def _size_problem(file: Path, entry: FileEntry) -> str | None:
    try:
        if not file.is_file():
            return "is missing"
        size = file.stat().st_size
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None if size == entry.size else f"is damaged: it has {size} bytes, the manifest says {entry.size}"


def _part_problem(file: Path, first: int, size: int, expected: str) -> str | None:
    try:
        found = sha256(file, first, size)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if found == expected:
        return None
    return f"is damaged (checksum differs): SHA-256 {found[:12]}… from byte {first} on, the manifest says {expected[:12]}…"


def _synchronize(directory: Path) -> None:
    """Let the system write everything down: a manifest must not outlive the files that it promises."""
    for file in directory.rglob("*"):
        if file.is_file():
            with file.open("rb") as stream:
                os.fsync(stream.fileno())


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
