"""The exported graph in eager PyTorch: the first stage of every table, and what every node of it computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from mlirstack.compare.bisect.execute_bundle import judged
from mlirstack.compare.bisect.results import Verdict
from mlirstack.compare.bisect.subject import Subject
from mlirstack.frontend.program import Program
from mlirstack.targets.base import Executable


class GraphExecutable(Executable):
    """The graph, node by node; ``values`` are names and values of the nodes of the last call."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.values: list[tuple[str, torch.Tensor]] = []

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """See :meth:`Executable.run`."""
        self.values = []
        given = iter(inputs)
        arguments = [
            self._program.parameters[spec.name] if spec.kind == "parameter" else next(given)
            for spec in self._program.signature.arguments
        ]
        interpreter = _Recorder(self._program.payload.module, self.values)  # type: ignore[union-attr]
        with torch.no_grad():
            return list(interpreter.run(*arguments))


class _Recorder(fx.Interpreter):
    """Keeps what each call of an operation gives."""

    def __init__(self, module: fx.GraphModule, values: list[tuple[str, torch.Tensor]]) -> None:
        super().__init__(module)
        self._recorded = values

    def run_node(self, n: fx.Node) -> Any:
        """Execute a node."""
        value = super().run_node(n)
        if isinstance(value, torch.Tensor) and n.op == "call_function":
            self._recorded.append((n.name, value.detach().clone()))
        return value


def graph_verdict(name: str, program: Program, subject: Subject) -> Verdict:
    """The verdict on the graph."""
    answer = judged(GraphExecutable(program), subject)
    ok = answer.pop("ok")
    return Verdict(name, "ok" if ok else "wrong", how="eager", **answer)


def graph_values(program: Program, subject: Subject) -> list[tuple[str, torch.Tensor]]:
    """Name and value of every node."""
    executable = GraphExecutable(program)
    subject.answer(executable)
    return executable.values
