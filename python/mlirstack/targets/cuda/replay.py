"""A whole function as one CUDA graph: built from explicit nodes once, launched many times.

Explicit nodes, not stream capture, because then exactly the nodes whose addresses changed can be updated: inputs and
results of a call are the caller's tensors, never static buffers.
"""

from __future__ import annotations

import torch

from mlirstack.targets.cuda.commands import Addresses
from mlirstack.targets.cuda.driver import Driver, Graph, Handle
from mlirstack.targets.cuda.frame import Frame


class Replay:
    """A graph over a frame and an arena of its own, for one call at a time on one stream.

    It may be updated and launched again while an earlier launch still runs: updates concern later launches only, and the
    stream keeps two launches from using the arena at once.
    """

    def __init__(self, driver: Driver, frame: Frame, arena: torch.Tensor, addresses: list[int]) -> None:
        self.frame, self._arena = frame, arena
        frame.point(addresses)
        self._graph: Graph = driver.graph()
        self._nodes: list[Handle] = []
        after: Handle | None = None
        for command in frame.commands:
            after = command.add(self._graph, after, addresses)
            self._nodes.append(after)
        self._graph.instantiate()
        self._users = [
            tuple(i for i, command in enumerate(frame.commands) if base in command.bases) for base in range(len(addresses))
        ]

    @property
    def arena_address(self) -> int:
        """Where the arena is."""
        return self._arena.data_ptr()

    def launch(self, addresses: list[int], stream: int) -> None:
        """Bring the nodes up to date and enqueue the graph."""
        changed = self.frame.point(addresses)
        if changed:
            self._update(changed, addresses)
        self._graph.launch(stream)

    def _update(self, changed: list[int], addresses: Addresses) -> None:
        for node in sorted({node for base in changed for node in self._users[base]}):
            self.frame.commands[node].update(self._graph, self._nodes[node], addresses)
