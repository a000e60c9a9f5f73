"""Asks a worker process what becomes of graphs on a target: whatever kills or hangs it costs one graph.

A process that is lost is replaced, and its graphs are asked for in halves, until the one at fault is alone.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from mlirstack.errors import WorkerLostError
from mlirstack.fuzz.generate import Drawn
from mlirstack.fuzz.results import EAGER, Result
from mlirstack.fuzz.spec import GraphSpec, to_json
from mlirstack.supervised import Supervised

_WORKER = (sys.executable, "-m", "mlirstack.fuzz.work")
_GROUPS_PER_PROCESS = 60  # what MLIR and IREE keep grows with every compilation


class Examiner:
    """One worker process, started at the first question; ``timeout`` is the seconds that one step may take."""

    def __init__(self, timeout: float, *, command: Sequence[str] = _WORKER) -> None:
        self._worker = Supervised(command, timeout=timeout, environment={"OMP_NUM_THREADS": "1"})
        self._asked = 0

    def __enter__(self) -> Examiner:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._worker.close()

    def results(
        self, graphs: Sequence[GraphSpec | Drawn], target: str, dump: Path | None = None, *, route: str = "auto"
    ) -> list[Result]:
        """The result of each of ``graphs`` on ``target``; ``dump`` is a directory for the stages."""
        self._asked += 1
        if self._asked % _GROUPS_PER_PROCESS == 0:
            self._worker.close()
        texts = [[g.seed, g.number] if isinstance(g, Drawn) else to_json(g) for g in graphs]
        question = {"graphs": texts, "targets": [target], "route": route, "dump": str(dump) if dump else None}
        try:
            return [Result(**result) for result in self._worker.ask(question)[target]]
        except WorkerLostError as error:
            if len(graphs) == 1 and error.doing == EAGER:
                return [Result("refused", f"eager has no answer: {error.message}")]
            if len(graphs) == 1:
                return [Result("died", error.message)]
            middle = len(graphs) // 2
            halves = (graphs[:middle], graphs[middle:])
            return [result for half in halves for result in self.results(half, target, route=route)]
