"""``torch.compile(model, backend="mlirstack")``: graphs of AOTAutograd through our stage tables, forward and backward.

``options``: ``target`` (default: where the inputs are, "cpu" or "cuda"), ``route``, ``threads``, ``dump`` (a directory; one
dump a graph), ``fallback`` ("eager", "inductor" or "error").  :func:`graphs` lists what became of each graph.
"""

from mlirstack.dynamo.backend.compile_graph import CompiledGraph, clear_graphs, graphs
from mlirstack.dynamo.backend.entry import mlirstack

__all__ = ["CompiledGraph", "clear_graphs", "graphs", "mlirstack"]
