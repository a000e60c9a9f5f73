"""The step from the exported FX graph to the torch dialect: ``@main`` over the graph's arguments, weights among them.

torch-mlir's FxImporter is driven directly, so that no weight ever becomes text and failures arrive with the user's line.
torch is imported when a graph arrives: stage tables name this step in tools that never see one.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from mlirstack.bindings import fx_importer, ir, new_context
from mlirstack.errors import Diagnostic, StageError
from mlirstack.frontend.program import ENTRY
from mlirstack.ir.ops import function
from mlirstack.ir.parameters import mark_parameters
from mlirstack.passes.sizes import mark_most
from mlirstack.pipeline.step import Translation

if TYPE_CHECKING:
    from torch import fx

    from mlirstack.frontend.graph import FxGraph


@dataclass(frozen=True)
class ImportFx(Translation):
    """Before: an :class:`FxGraph`.  After: a module of the torch dialect with ``@main``, in a context of its own.

    Arguments that hold parameters carry ``mlirstack.parameter = "fc1.weight"``, unless the program writes to them; those
    with dynamic dimensions say the most that these can be, ``mlirstack.most = array<i64: 64, 512>``.  The passes down to
    linalg keep both.

    A location is the stack of Python calls that led to a node.  Torch knows their lines but no columns; what stands for the
    column is the node, by its line in the dump of the exported graph.

    ``for_tosa`` takes those operations apart first that have no conversion to TOSA as they are.
    """

    for_tosa: bool = False

    name: ClassVar[str] = "mlirstack-import-fx"

    def translate(self, payload: Any) -> Any:
        """Import ``payload``, which is not changed; :class:`StageError` naming the node that cannot be imported."""
        from mlirstack.frontend.check_importer import checking_importer
        from mlirstack.frontend.control_flow import control_flow_importer
        from mlirstack.frontend.devices import forget_devices
        from mlirstack.frontend.graph import FxGraph

        assert isinstance(payload, FxGraph)
        graph_module = copy.deepcopy(payload.module)  # the importer rewrites what it reads
        importer = fx_importer()(context=new_context(), graph_node_importer_cls=checking_importer(control_flow_importer()))
        lines = _lines_in_dump(payload, graph_module)
        if self.for_tosa:
            from mlirstack.frontend.replace_nodes import replace_nodes
            from mlirstack.frontend.tosa.rules import tosa_rules

            origins = replace_nodes(graph_module, tosa_rules())
            lines |= {node: lines[origin] for node, origin in origins.items() if origin in lines}
        forget_devices(graph_module)
        _locate_nodes(importer, lines)
        try:
            importer.import_graph_module(graph_module, func_name=ENTRY)
        except (NotImplementedError, AssertionError, KeyError, ValueError, TypeError, RuntimeError) as error:
            raise _import_error(error) from error
        module = importer.module
        parameters = {i: a.name for i, a in enumerate(payload.arguments) if a.kind == "parameter"}
        constant = {i: name for i, name in parameters.items() if name not in payload.mutated}
        mark_parameters(function(module, ENTRY), constant)
        varying = {
            i: payload.most(a) for i, a in enumerate(payload.arguments) if any(isinstance(n, str) for n in a.shape or ())
        }
        if varying:
            mark_most(function(module, ENTRY), varying)
        return module


_HEADING = 1  # lines above the graph's text in a dump


def _lines_in_dump(graph: FxGraph, copied: fx.GraphModule) -> dict[fx.Node, int]:
    """The line on which each node of ``copied``, a copy of the graph's module, stands in the dump of ``graph``."""
    from mlirstack.frontend.graph import printed_nodes

    lines = graph.node_lines()
    pairs = zip(printed_nodes(graph.module), printed_nodes(copied), strict=True)
    return {twin: lines[node] + _HEADING for node, twin in pairs if node in lines}


def _locate_nodes(importer: Any, lines: dict[fx.Node, int]) -> None:
    """Make ``importer`` give each node's operations locations with ``lines`` as columns."""
    from mlirstack.frontend.graph import node_frames

    class NodeLocations(type(importer._cc)):  # type: ignore[misc]
        def get_node_location(self, node: fx.Node) -> Any | None:
            frames = [
                ir.Location.file(frame.file, frame.line, lines.get(node, 0), context=self._c) for frame in node_frames(node)
            ]
            if len(frames) > 1:
                return ir.Location.callsite(frames[-1], frames[-2::-1], context=self._c)
            return frames[0] if frames else None  # None: as the node before

    importer._cc = NodeLocations(importer._cc._c, py_attr_tracker=importer._py_attr_tracker)


def _import_error(error: Exception) -> StageError:
    from mlirstack.frontend.graph import describe, node_source

    lines = str(error).split(", {'", 1)[0].strip().splitlines()  # the importer appends the node's metadata
    reason = f"{type(error).__name__}: {lines[0] if lines else ''}"
    node = _node_at(error.__traceback__)
    what = f"'{describe(node)}'" if node is not None else "the graph"
    source = node_source(node) if node is not None else None
    message = f"{what} cannot be imported into the torch dialect: {reason}"
    location = f'"{source.file}":{source.line}:0' if source else "unknown"
    return StageError(
        message,
        stage="torch",
        op=describe(node) if node is not None else None,
        location=source,
        diagnostics=(Diagnostic("error", message, location, source),),
    )


def _node_at(frames: TracebackType | None) -> fx.Node | None:
    """The node that the importer worked on: it keeps it in a local variable of that name."""
    from torch import fx

    found: fx.Node | None = None
    while frames is not None:
        candidate = frames.tb_frame.f_locals.get("node")
        if isinstance(candidate, fx.Node) and candidate.op == "call_function":
            found = candidate
        frames = frames.tb_next
    return found
