"""Demonstrations with torch's own logs: the capture, a graph break, a recompilation; and the source of a fused kernel.

    python examples/compile_lab/logs.py capture|break|recompile|kernel

The first three need no compiler; what is printed is what ``TORCH_LOGS`` would show.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

import torch
from tiny_mlp import SmallPrintingMLP, TinyMLP


def capture() -> None:
    """The FX graph that Dynamo captures."""
    torch._logging.set_logs(graph_code=True)
    torch.compile(TinyMLP(64), backend="eager")(torch.randn(16, 64))


def graph_break() -> None:
    """Why and where the graph breaks."""
    torch._logging.set_logs(graph_breaks=True)
    torch.compile(SmallPrintingMLP(), backend="eager")(torch.randn(16, 64))


def recompile() -> None:
    """Which guard failed: another batch, then another dtype."""
    torch._logging.set_logs(recompiles=True)
    model = TinyMLP(64)
    compiled = torch.compile(model, backend="eager")
    for batch in (16, 32, 48):
        compiled(torch.randn(batch, 64))
    with torch.no_grad():
        compiled(torch.randn(16, 64))


def kernel() -> None:
    """The source of the fused kernel that Inductor generates."""
    from mlirstack.dynamo.explain.explain import explain

    report = explain(TinyMLP(64), torch.randn(16, 64), time=False, own_pipeline=False)
    for one in report.kernels:
        print(f"// {one.name}: {', '.join(one.fused_ops)}; {one.bytes} bytes")
        print(one.source)


DEMONSTRATIONS: dict[str, Callable[[], None]] = {
    "capture": capture,
    "break": graph_break,
    "recompile": recompile,
    "kernel": kernel,
}

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in DEMONSTRATIONS:
        sys.exit(f"one of: {', '.join(DEMONSTRATIONS)}")
    logging.getLogger("torch").propagate = False
    torch.manual_seed(0)
    DEMONSTRATIONS[sys.argv[1]]()
