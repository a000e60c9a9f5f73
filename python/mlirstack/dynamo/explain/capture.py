"""Runs a function under torch.compile and keeps what the trace says: caches off, each graph's calls timed on request.

The back end is Inductor, wrapped so that the times at which graphs run are known: what passes between two graphs is the
price of the break between them.  :func:`capture` alone changes global settings, and puts all of them back.
"""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch._guards import CompileContext
from torch.utils import _pytree as pytree

from mlirstack.dynamo.explain.trace import Trace, collect, trace_of
from mlirstack.errors import UsageError

Function = Callable[..., Any]
Call = Callable[[Function], Any]
"""Calls the compiled function that it is given, in whatever circumstances it is about."""


@dataclass(frozen=True)
class GraphRun:
    """One run of a compiled graph: its compilation, and the seconds at which it began and ended."""

    compile_id: str
    began: float
    ended: float


@dataclass
class Capture:
    """A compiled function with its trace; ``error`` is what compiling raised, if it did.

    ``graphs_after_call`` counts the graphs that were compiled up to the end of each call.
    """

    function: Function
    compiled: Function
    calls: tuple[Call, ...]
    trace: Trace
    error: Exception | None
    runs: list[GraphRun] = field(default_factory=list)
    recording: bool = False
    compiled_graphs: int = 0
    graphs_after_call: list[int] = field(default_factory=list)

    def synchronize(self) -> None:
        """Wait until the devices have done what they were asked to."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()


def call_with(args: Sequence[Any], kwargs: dict[str, Any], *, backward: bool) -> Call:
    """A call with these arguments: without gradients, or with them and a backward pass from the sum of the results."""

    def forward_only(function: Function) -> Any:
        with torch.no_grad():
            return function(*args, **kwargs)

    def with_backward(function: Function) -> Any:
        result = function(*args, **kwargs)
        floats = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        if floats:
            torch.autograd.backward(torch.stack([leaf.float().sum() for leaf in floats]).sum())
        return result

    return with_backward if backward else forward_only


def capture(
    function: Function,
    calls: Sequence[Call],
    *,
    generate_code: bool = True,
    dynamic: bool | None = None,
    fullgraph: bool = False,
    settings: dict[str, Any] | None = None,
    fresh: bool = True,
) -> Capture:
    """Compile ``function`` and make the ``calls``; without ``generate_code`` the graphs are captured and run in eager.

    ``settings`` are changes of ``torch._dynamo.config``, as far as this torch has them.  ``fresh`` forgets all that was
    compiled before.  What compiling raises is kept in the result; :class:`UsageError` where the function raises in eager.
    """
    if fresh:
        torch._dynamo.reset()
    found = Capture(function, function, tuple(calls), trace_of(()), None)
    with _settings(settings or {}), quiet(), collect() as events:
        found.compiled = torch.compile(
            function, backend=_backend(found, generate_code), dynamic=dynamic, fullgraph=fullgraph
        )  # fmt: skip
        for call in calls:
            try:
                call(found.compiled)
            except Exception as error:  # whatever the model or the compiler raises: told apart by asking eager
                found.error = error
                break
            finally:
                found.graphs_after_call.append(found.compiled_graphs)
    if found.error is not None:
        _call_in_eager(function, calls)
    found.trace = trace_of(events)
    return found


def _call_in_eager(function: Function, calls: Sequence[Call]) -> None:
    """What eager raises, too, is a mistake of the model and no matter of compiling: :class:`UsageError`."""
    with quiet():
        for call in calls:
            try:
                call(function)
            except Exception as error:  # any code may stand in a model
                first = str(error).strip().partition("\n")[0]
                raise UsageError(f"the model raises without torch.compile, too: {type(error).__name__}: {first}") from error


def _backend(found: Capture, generate_code: bool) -> Callable[[torch.fx.GraphModule, list[Any]], Function]:
    def compile_graph(module: torch.fx.GraphModule, inputs: list[Any]) -> Function:
        found.compiled_graphs += 1
        compile_id = str(CompileContext.current_compile_id() or "")
        if generate_code:
            from torch._inductor.compile_fx import compile_fx

            run: Function = compile_fx(module, inputs)  # type: ignore[assignment]  # a function for a graph module
        else:
            run = module.forward

        def timed(*args: Any) -> Any:
            if not found.recording:
                return run(*args)
            found.synchronize()
            began = time.perf_counter()
            result = run(*args)
            found.synchronize()
            found.runs.append(GraphRun(compile_id, began, time.perf_counter()))
            return result

        return timed

    return compile_graph


def record(found: Capture, call: Call) -> tuple[float, float, tuple[GraphRun, ...]]:
    """One timed call of the compiled function: when it began, when it ended, and the graphs that ran."""
    found.runs.clear()
    found.recording = True
    try:
        with quiet():
            began = time.perf_counter()
            call(found.compiled)
            found.synchronize()
            ended = time.perf_counter()
    finally:
        found.recording = False
    return began, ended, tuple(found.runs)


@contextmanager
def quiet() -> Iterator[None]:
    """What the function prints or warns of is not what is asked for."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _settings(changes: dict[str, Any]) -> Iterator[None]:
    """Caches off, node mapping on, and ``changes`` of Dynamo's settings, where this torch has them."""
    from torch._inductor import config

    inductor = {"force_disable_caches": True, "trace.provenance_tracking_level": 1}
    with ExitStack() as stack:
        stack.enter_context(config.patch(known_settings(config, inductor)))
        stack.enter_context(torch._dynamo.config.patch(known_settings(torch._dynamo.config, changes)))
        stack.enter_context(_nodes_of_backward_kernels())
        yield


@contextmanager
def _nodes_of_backward_kernels() -> Iterator[None]:
    """Let the trace say which nodes are in the kernels of a backward graph, too.

    Inductor knows, and writes it down only for graphs that it has optimised before AOTAutograd took them apart.
    """
    from torch._inductor import debug

    write = getattr(debug, "dump_inductor_provenance_info", None)
    reversed_mapping = getattr(debug, "create_node_mapping_kernel_to_post_grad", None)

    def write_all() -> dict[str, Any]:
        written: dict[str, Any] = write()  # type: ignore[misc]
        known = getattr(debug, "_inductor_triton_kernel_to_post_grad_node_info", {})
        return written if "cppCodeToPost" in written else {**written, **reversed_mapping(known)}  # type: ignore[misc]

    if write is None or reversed_mapping is None:
        yield
        return
    with mock.patch.object(debug, "dump_inductor_provenance_info", write_all):
        yield


def known_settings(config: Any, changes: dict[str, Any]) -> dict[str, Any]:
    """Those of the changes that the settings of this torch know."""
    known = {}
    for name, value in changes.items():
        place: Any = config
        for part in name.split("."):
            place = getattr(place, part, None)
        if place is not None:
            known[name] = value
    return known
