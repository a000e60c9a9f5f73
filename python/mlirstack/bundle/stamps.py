"""Which files were found to be what their manifest says: stamps in the user's cache, so that a file is hashed once.

To hash a gigabyte takes longer than to map it.  A stamp stands for one state of one file, as in the index of git: device,
inode, size, times of the last change, and the checksum that was found.  Whatever writes to the file changes its times, and
no program can set the last of them, that of the inode.  A stamp that cannot be read or written costs time, nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

COARSE, FINE = 2.0, 0.1  # seconds; how long a file must be as it is: clocks of file systems tick every 2 s, or 10 ms
KEPT = 180 * 86400.0  # seconds that a stamp is kept without being used


@dataclass(frozen=True)
class FileState:
    """One state of a file.  One that is not ``settled`` may still become another without new times."""

    identity: tuple[int, ...]
    settled: bool

    @staticmethod
    def of(file: Path) -> FileState | None:
        """The state now; None where there is none to be had."""
        try:
            now, found = time.time(), file.stat()
        except OSError:
            return None
        identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        is_fine = all(changed % 1_000_000 for changed in (found.st_mtime_ns, found.st_ctime_ns))
        return FileState(identity, now - max(found.st_mtime, found.st_ctime) >= (FINE if is_fine else COARSE))


def is_known(state: FileState, sha256: str) -> bool:
    """Was a file in this state found to have this checksum?"""
    with contextlib.suppress(OSError, RuntimeError):
        os.utime(_stamp(state, sha256))
        return True
    return False


def remember(file: Path, before: FileState, sha256: str) -> None:
    """Write down that ``file`` has this checksum, which was found after ``before``; not where it was too fresh then, or has
    changed meanwhile."""
    with contextlib.suppress(OSError, RuntimeError):
        found = FileState.of(file)
        if not before.settled or found is None or found.identity != before.identity:
            return
        stamp = _stamp(before, sha256)
        stamp.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for other in stamp.parent.iterdir():
            if time.time() - other.stat().st_mtime > KEPT:
                other.unlink()
        stamp.touch()


def _stamp(state: FileState, sha256: str) -> Path:
    """The file whose existence is the stamp; RuntimeError where the user has no home."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    text = " ".join(map(str, (*state.identity, sha256)))
    return cache / "mlirstack" / "verified" / hashlib.sha256(text.encode()).hexdigest()
