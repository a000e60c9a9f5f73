"""Numbers for values: what is computed alike has the same one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Numbering(ABC):
    """Numbers of the elements of tensors, and of scalars, each looked at once."""

    keys: dict[Any, int] = field(default_factory=dict)
    known: dict[Any, int] = field(default_factory=dict)

    def of(self, value: Any) -> int:
        """The number of the elements of a tensor, or of a scalar."""
        if value not in self.known:
            self.known[value] = self._of(value)
        return self.known[value]

    @abstractmethod
    def _of(self, value: Any) -> int:
        """The number of ``value``, which is not known yet."""

    def _named(self, *key: Any) -> int:
        """The number of what ``key`` says."""
        return self.keys.setdefault(key, len(self.keys))
