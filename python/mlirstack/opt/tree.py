"""``--mlir-print-ir-tree-dir`` for some passes only: the bindings write the files of all passes into a directory of their
own, and those that were asked for are moved from there, numbered as if they were the only ones.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

from mlirstack.opt.dumps import Dump, Filter, header, is_filtered
from mlirstack.opt.flags import Invocation

_NAME = re.compile(r"(\d+(?:_\d+)*)_(.*)$", re.DOTALL)


class Tree:
    """The directory that the bindings write to, ``written``, until :meth:`finish` moves what was asked for."""

    def __init__(self, target: Path, wanted: Callable[[Dump], bool]) -> None:
        self.written = tempfile.mkdtemp()
        self._target = target
        self._wanted = wanted

    @classmethod
    def of(cls, invocation: Invocation) -> Tree | None:
        """None where the command line asks for no tree, or for one of all passes."""
        target = invocation.text("mlir-print-ir-tree-dir")
        return cls(Path(target), Filter(invocation).wants) if target is not None and is_filtered(invocation) else None

    def finish(self) -> None:
        """Move the files that were asked for and remove the others."""
        move_wanted(Path(self.written), self._target, self._wanted)
        shutil.rmtree(self.written)


def move_wanted(written: Path, target: Path, wanted: Callable[[Dump], bool]) -> None:
    """Move the files below ``written`` whose dump is ``wanted`` to ``target``.

    A file's name starts with one number for each operation from the outermost to the one that the pass ran on: how many
    files that one had before.  A directory stands for an operation.
    """
    kept: dict[Path, dict[tuple[int, ...], Path]] = {}  # by directory: the wanted files by their numbers
    for path in sorted(written.rglob("*.mlir")):
        match = _NAME.match(path.name)
        with path.open("rb") as file:
            dump = header(file.readline().rstrip(b"\n"))
        if match and dump and wanted(dump):
            numbers = tuple(int(number) for number in match[1].split("_"))
            kept.setdefault(path.parent, {})[numbers] = path
    own = {directory: sorted(numbers[-1] for numbers in files) for directory, files in kept.items()}
    for directory, files in kept.items():
        place = target / directory.relative_to(written)
        place.mkdir(parents=True, exist_ok=True)
        for numbers, path in files.items():
            outer = [directory, *directory.parents][: len(numbers)][::-1]
            again = [max(bisect_right(own.get(d, []), n) - 1, 0) for d, n in zip(outer, numbers, strict=True)]
            name = path.name.removeprefix("_".join(map(str, numbers)))
            shutil.move(path, place / f"{'_'.join(map(str, again))}{name}")
