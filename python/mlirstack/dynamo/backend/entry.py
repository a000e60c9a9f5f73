"""The function that ``torch.compile`` finds under the name "mlirstack": a Dynamo graph in, a callable out.

AOTAutograd makes functional forward and backward graphs of it; each goes through our stage tables, or to the fallback.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from mlirstack.dynamo.backend.attention import TracedAttention
from mlirstack.dynamo.backend.compile_graph import GraphFunction, compile_graph, why
from mlirstack.dynamo.backend.options import BackendOptions, read_options
from mlirstack.errors import MlirstackError, UsageError
from mlirstack.frontend.decompositions.recurrent import mend_lstm_layers
from mlirstack.frontend.decompositions.table import decomposition_table

mend_lstm_layers()  # here, since Dynamo has traced the layer before it gives a graph to the back end

log = logging.getLogger(__name__)

Compiled = Callable[..., Any]


def mlirstack(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Compiled:
    """Compile one graph of Dynamo; see :class:`BackendOptions` for ``options``.

    A forward graph that cannot be compiled, or that draws random numbers, runs as ``options["fallback"]`` says; random
    numbers are always eager's, so that a seed gives what it gives without torch.compile.  A backward graph that cannot be
    compiled falls back alone.
    """
    chosen = read_options(options)
    if mode not in (None, "default"):
        raise UsageError(f"mode '{mode}' is Inductor's", hint="leave it out; backend 'mlirstack' takes options={...}")
    if not any(node.op == "call_function" or node.op.startswith("call_") for node in module.graph.nodes):
        return module.forward
    try:
        return _through_aot_autograd(module, example_inputs, chosen)
    except _ForwardError as failure:
        error = failure.error
    if chosen.fallback == "error":
        raise error
    log.warning("a graph runs in %s: %s", chosen.fallback, why(error))
    if chosen.fallback == "inductor" and not _is_random(error):
        from torch._inductor.compile_fx import compile_fx

        compiled: Compiled = compile_fx(module, list(example_inputs))  # type: ignore[assignment]
        return compiled
    return module.forward


class _ForwardError(Exception):
    """Takes the reason why a forward graph cannot be compiled through AOTAutograd, unchanged."""

    def __init__(self, error: MlirstackError) -> None:
        super().__init__(str(error))
        self.error = error


def _through_aot_autograd(module: fx.GraphModule, example_inputs: Sequence[Any], options: BackendOptions) -> Compiled:
    from torch._dynamo.backends.common import aot_autograd
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def forward(kind: str) -> Callable[[fx.GraphModule, Sequence[Any]], GraphFunction]:
        def compile_forward(graph: fx.GraphModule, inputs: Sequence[Any]) -> GraphFunction:
            try:
                return compile_graph(graph, kind, options)
            except MlirstackError as error:
                raise _ForwardError(error) from error

        return compile_forward

    def compile_backward(graph: fx.GraphModule, inputs: Sequence[Any]) -> GraphFunction:
        try:
            return compile_graph(graph, "backward", options)
        except MlirstackError as error:
            if options.fallback == "error":
                raise
            log.warning("a backward graph runs in %s: %s", options.fallback, why(error))
            return _run_elsewhere(graph, inputs, options.fallback)

    through = aot_autograd(
        fw_compiler=forward("forward"),
        bw_compiler=compile_backward,
        inference_compiler=forward("inference"),
        decompositions=decomposition_table(),
        partition_fn=_partition,
    )
    # Attention arrives as matrix products and a softmax (with dropout, as torch's), and an LSTM as its cells: the fused
    # operations have no lowering, and no backward one.
    with TracedAttention(), sdpa_kernel(SDPBackend.MATH), _without_mkldnn():
        return through(module, list(example_inputs))


def _partition(joint: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    """A common graph of both passes divided where the least has to be kept.

    What a gradient's formula computes again is not taken for what the forward pass computed: attention's weights, or its
    operands as float32, would be kept for it.
    """
    from torch._functorch import config
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    with config.patch(cse=False):
        return min_cut_rematerialization_partition(joint, inputs, **options)


@contextmanager
def _without_mkldnn() -> Iterator[None]:
    """``torch.backends.mkldnn.flags`` sets TF32 too, and warns on machines that have none."""
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(enabled)


def _run_elsewhere(graph: fx.GraphModule, inputs: Sequence[Any], fallback: str) -> GraphFunction:
    """A functional graph run by Inductor or, one operation after the other, by eager."""
    if fallback == "inductor":
        from torch._inductor.compile_fx import compile_fx_inner

        return compile_fx_inner(graph, list(inputs))
    from torch._functorch._aot_autograd.utils import make_boxed_func

    return make_boxed_func(graph.forward)


def _is_random(error: MlirstackError) -> bool:
    return any("random" in op.reason for op in getattr(error, "ops", ()))
