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

from mlirstack.bundle.manifest import MANIFEST, FileEntry, Manifest
from mlirstack.errors import BundleError, UsageError


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
    """Every file below ``directory`` but the manifest, with size and checksum."""
    files = sorted(f for f in directory.rglob("*") if f.is_file() and f.name != MANIFEST)
    return {f.relative_to(directory).as_posix(): FileEntry(f.stat().st_size, sha256(f)) for f in files}


def file_problems(path: Path, manifest: Manifest, *, unread: frozenset[str] = frozenset()) -> list[FileProblem]:
    """What is missing, cut short, or damaged; of the files in ``unread`` only the size is looked at."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:  # hashing releases the GIL
        tasks = {
            name: pool.submit(_problem, path / name, entry, contents=name not in unread)
            for name, entry in manifest.files.items()
        }
        return [FileProblem(name, reason) for name, task in tasks.items() if (reason := task.result())]


def sha256(path: Path) -> str:
    """SHA-256 of a file's contents, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _problem(file: Path, entry: FileEntry, *, contents: bool) -> str | None:
    try:
        if not file.is_file():
            return "is missing"
        size = file.stat().st_size
        if size != entry.size:
            return f"is damaged: it has {size} bytes, the manifest says {entry.size}"
        if contents and (found := sha256(file)) != entry.sha256:
            return f"is damaged (checksum differs): SHA-256 {found[:12]}…, the manifest says {entry.sha256[:12]}…"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None


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
