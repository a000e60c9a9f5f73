"""What torch.export does beside capturing a graph, left undone until somebody asks for it.

For every node torch looks up the text of each line on the stack of Python calls, to keep the few lines of the user's; after
every pass over a graph it writes the graph's Python code, which nobody calls.  Together that is a third of an export.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch.utils._traceback as torch_traceback
from torch.fx._lazy_graph_module import _use_lazy_graph_module


@contextmanager
def quick_capture() -> Iterator[None]:
    """Export by tracing Python code gives the same program inside of it, in less time; the strict tracer needs the code."""
    whole = torch_traceback._extract_symbolized_tb
    torch_traceback._extract_symbolized_tb = _stack
    try:
        with _use_lazy_graph_module(True):
            yield
    finally:
        torch_traceback._extract_symbolized_tb = whole


def _stack(frames: Sequence[dict[str, Any]], skip: int) -> traceback.StackSummary:
    """As torch's function of that name, but that a line's text is read when it is printed."""
    return traceback.StackSummary(
        traceback.FrameSummary(frame["filename"], frame["line"], frame["name"], lookup_line=False)
        for frame in reversed(frames[skip:])
    )
