"""GPU architectures by name (``sm_90a``) and which code runs on which device; plain arithmetic on version numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from mlirstack.errors import UsageError

Capability = tuple[int, int]  # compute capability of a device: (9, 0)
Image = Literal["cubin", "ptx"]  # machine code, or text that the driver compiles

_NAME = re.compile(r"sm_(\d{1,2})(\d)([af]?)")


@dataclass(frozen=True)
class Arch:
    """What code was compiled for.

    ``feature`` "a": uses instructions of exactly this device (wgmma of sm_90a).  "f": runs on later devices of the family.
    """

    major: int
    minor: int
    feature: Literal["", "a", "f"] = ""

    @staticmethod
    def parse(text: str) -> Arch:
        """``sm_90a`` to its parts; :class:`UsageError` where it is no architecture."""
        match = _NAME.fullmatch(text)
        if not match or int(match[1]) < 8:
            raise UsageError(
                f"'{text}' is no GPU architecture that can be compiled for",
                hint="write cuda:sm_80, cuda:sm_86, cuda:sm_89, cuda:sm_90, cuda:sm_90a",
            )
        feature: Literal["", "a", "f"] = "a" if match[3] == "a" else "f" if match[3] == "f" else ""
        return Arch(int(match[1]), int(match[2]), feature)

    @staticmethod
    def of_device(capability: Capability) -> Arch:
        """The architecture that uses all of a device: ``sm_90a`` for 9.0, ``sm_80`` for 8.0."""
        major, minor = capability
        return Arch(major, minor, "a" if major >= 9 else "")

    def __str__(self) -> str:
        return f"sm_{self.major}{self.minor}{self.feature}"

    def runs_cubin(self, capability: Capability) -> bool:
        """Does machine code for this architecture run on a device?  Within a major version, on the same or a later minor."""
        if self.feature == "a":
            return capability == (self.major, self.minor)
        return capability[0] == self.major and capability[1] >= self.minor

    def runs_ptx(self, capability: Capability) -> bool:
        """Can the driver of a device compile PTX of this architecture?  Any later device can, features aside."""
        return self.runs_cubin(capability) if self.feature else capability >= (self.major, self.minor)

    def image_for(self, capability: Capability, *, jit: bool = False) -> Image | None:
        """What to load on a device: machine code where it runs, else (or with ``jit``) PTX; None where neither runs."""
        if self.runs_cubin(capability) and not jit:
            return "cubin"
        return "ptx" if self.runs_ptx(capability) else None


@dataclass(frozen=True)
class Architectures:
    """What a program is built for: ``sm_90a``, or ``sm_80+sm_89+sm_90``, machine code for each of which is made from the PTX
    of the first."""

    archs: tuple[Arch, ...]

    @staticmethod
    def parse(text: str) -> Architectures:
        """:class:`UsageError` where one is no architecture, or the PTX of the first does not serve another."""
        first, *others = archs = tuple(Arch.parse(part) for part in text.split("+"))
        for arch in others:
            if first.feature or arch.feature or (arch.major, arch.minor) <= (first.major, first.minor):
                raise UsageError(
                    f"{arch} cannot share its kernels with {first}",
                    hint="list the oldest first, and none that ends in 'a'; cuda:sm_80,cuda:sm_90a are two targets",
                )
        return Architectures(archs)

    def __str__(self) -> str:
        return "+".join(map(str, self.archs))

    @property
    def first(self) -> Arch:
        """The one whose PTX it is."""
        return self.archs[0]

    @property
    def are_several(self) -> bool:
        """Is the code a fat binary?"""
        return len(self.archs) > 1

    def image_for(self, capability: Capability, *, jit: bool = False) -> Image | None:
        """As :meth:`Arch.image_for`."""
        if not jit and any(arch.runs_cubin(capability) for arch in self.archs):
            return "cubin"
        return self.first.image_for(capability, jit=True)
