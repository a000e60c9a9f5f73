"""Attention as one kernel: ``softmax(mask(Q Kᵀ)) V`` without scores in memory.

On sm_90a, f16 and bf16 run on warpgroup products fed by the copy engine
(:mod:`~mlirstack.schedules.cuda.attention.attention_wgmma`), elsewhere, and for few queries, on ``mma.sync``
(``attention_mma``); float32 runs exactly (``attention_fma``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlirstack.schedules.cuda.attention import attention_fma, attention_match, attention_mma, attention_wgmma
from mlirstack.schedules.cuda.attention.attention_choice import candidates, mma_plan, wgmma_plan
from mlirstack.schedules.cuda.attention.attention_claim import claim
from mlirstack.schedules.cuda.attention.attention_scores import scores_of
from mlirstack.schedules.cuda.attention.attention_split import grouped
from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.emitter import Parameters
from mlirstack.schedules.cuda.graph import KernelGraph


class Attention:
    """Emitter of attention."""

    name = "attention"

    def claim(self, operations: Sequence[Any], device: Device) -> list[list[Any]]:
        """Groups of ops, one per attention, that this emitter takes on ``device``.

        ``operations``: a block's, linalg on tensors, before other kernels are formed; what an attention shares with others
        is copied (:mod:`~mlirstack.schedules.cuda.attention.attention_claim`).
        """
        return claim(operations, lambda attention: bool(candidates(attention, device)))

    def choose(self, graph: KernelGraph, device: Device) -> Parameters | None:
        """The parameters that the cost model finds best."""
        return next(iter(self.candidates(graph, device)), None)

    def candidates(self, graph: KernelGraph, device: Device) -> list[Parameters]:
        """All sets of parameters that fit the device, the chosen one first."""
        attention = attention_match.match(graph)
        if attention is None:
            return []
        read = (attention.query, attention.key, attention.value, *scores_of(attention).masks)
        return candidates(attention, device) if all(element.tensor.is_argument for element in read) else []

    def emit(self, function: Any, graph: KernelGraph, parameters: Parameters, device: Device) -> None:
        """Write the kernel, or two of them where the keys are divided."""
        attention = attention_match.match(graph)
        assert attention is not None
        if parameters.get("grouped"):
            attention = grouped(attention)
        scores = scores_of(attention)
        if parameters["kernel"] == "wgmma":
            attention_wgmma.emit(function, scores, wgmma_plan(attention, parameters), device.multiprocessors)
        elif parameters["kernel"] == "mma":
            attention_mma.emit(function, scores, mma_plan(attention, parameters))
        else:
            attention_fma.emit(function, scores, attention_fma.Plan(attention, int(parameters["keys"])))
