"""Attention as one kernel: which graphs are taken, with which tile sizes, and which of the kernels is written.

Scores never reach memory.  On sm_90a, f16 and bf16 run on warpgroup products fed by the copy engine
(:mod:`~mlirstack.schedules.cuda.attention_wgmma`), elsewhere on ``mma.sync``
(:mod:`~mlirstack.schedules.cuda.attention_mma`); float32 runs exactly (:mod:`~mlirstack.schedules.cuda.attention_fma`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlirstack.bindings import ir
from mlirstack.schedules.cuda import attention_fma, attention_match, attention_mma, attention_wgmma
from mlirstack.schedules.cuda.attention_block import Plan, can_copy
from mlirstack.schedules.cuda.attention_claim import claim
from mlirstack.schedules.cuda.attention_match import KEY, ROW
from mlirstack.schedules.cuda.attention_scores import Scores, scores_of
from mlirstack.schedules.cuda.attention_split import grouped
from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.emitter import Parameters
from mlirstack.schedules.cuda.graph import KernelGraph

_WIDEST = 256  # columns of a head
_FEW_ROWS = 16  # queries of heads that share K and V: one fragment
_MANY_KEYS = 256
_DIVIDED_KEYS = 64  # of a tile, where keys are divided


class Attention:
    """Emitter of ``softmax(mask(Q Kᵀ)) V``."""

    name = "attention"

    def claim(self, operations: Sequence[Any], device: Device) -> list[list[Any]]:
        """Groups of ops, one per attention, that this emitter takes on ``device``; see :mod:`.attention_claim`.

        ``operations``: a block's, linalg on tensors, before other kernels are formed.
        """
        return claim(operations, lambda attention: bool(_candidates(attention, device)))

    def choose(self, graph: KernelGraph, device: Device) -> Parameters | None:
        """The parameters that the cost model finds best."""
        candidates = self.candidates(graph, device)
        return candidates[0] if candidates else None

    def candidates(self, graph: KernelGraph, device: Device) -> list[Parameters]:
        """All sets of parameters that fit the device, the chosen one first."""
        attention = attention_match.match(graph)
        return _candidates(attention, device) if attention is not None else []

    def emit(self, function: Any, graph: KernelGraph, parameters: Parameters, device: Device) -> None:
        """Write the kernel."""
        attention = attention_match.match(graph)
        assert attention is not None
        if parameters.get("grouped"):
            attention = grouped(attention)
        scores = scores_of(attention)
        if parameters["kernel"] == "wgmma":
            attention_wgmma.emit(function, scores, _plan(attention, parameters), device.multiprocessors)
        elif parameters["kernel"] == "mma":
            attention_mma.emit(function, scores, _mma_plan(attention, parameters))
        else:
            attention_fma.emit(function, scores, attention_fma.Plan(attention, int(parameters["keys"])))


def _candidates(attention: attention_match.Attention, device: Device) -> list[Parameters]:
    """Parameters of all kernels that can compute it, the best one first."""
    operands = {e.tensor.element for e in (attention.query, attention.key, attention.value)}
    if max(attention.width, attention.value_width) > _WIDEST or len(operands) != 1:
        return []
    if operands == {ir.F32Type.get()}:
        return _fma_candidates(attention, device) if attention.output.tensor.element == ir.F32Type.get() else []
    if not operands <= {ir.F16Type.get(), ir.BF16Type.get()}:
        return []
    divided = _divided_candidates(attention, device)
    found = _wgmma_candidates(attention, device) if _fits_wgmma(attention, device) else []
    return divided + found + _mma_candidates(attention, device)


# ------------------------------------------------------------------------------------------------------------------ fma


def _fma_candidates(attention: attention_match.Attention, device: Device) -> list[Parameters]:
    """Tiles of as many keys as leave room for two blocks on a multiprocessor first."""
    fitting = [
        (plan.shared_bytes, keys)
        for keys in (64, 32, 16)
        if (plan := attention_fma.Plan(attention, keys)).shared_bytes <= device.shared_per_block
    ]
    two = [keys for size, keys in fitting if 2 * size <= device.shared_per_multiprocessor]
    order = [*two, *(keys for _, keys in fitting if keys not in two)]
    return [{"kernel": "fma", "keys": keys} for keys in order]


# ------------------------------------------------------------------------------------------------------------------ mma


def _mma_candidates(attention: attention_match.Attention, device: Device) -> list[Parameters]:
    """Two fragments a warp read K and V half as often, where registers allow it."""
    width = max(attention.width, attention.value_width)
    order = [(4, 2, 64), (4, 1, 64), (8, 1, 64)] if width <= 64 else [(4, 1, 64), (8, 1, 64), (4, 1, 32)]
    if width > 128:
        order = [(4, 1, 32), (8, 1, 32)]
    if attention.rows <= 64:
        order = [choice for choice in order if choice[:2] == (4, 1)]
    found: list[Parameters] = [
        {"kernel": "mma", "warps": warps, "fragments": fragments, "keys": keys} for warps, fragments, keys in order
    ]
    return [choice for choice in found if _mma_plan(attention, choice).shared_bytes <= device.shared_per_block]


def _divided_candidates(attention: attention_match.Attention, device: Device) -> list[Parameters]:
    """With at most one fragment of queries: as many parts of the keys as fill the device, none shorter than two tiles."""
    rows = grouped(attention)
    if rows.rows > _FEW_ROWS or attention.keys < _MANY_KEYS:
        return []
    tiles = -(-attention.keys // _DIVIDED_KEYS)
    wanted = [-(-blocks * device.multiprocessors // rows.batch) for blocks in (6, 3, 12)]
    splits = dict.fromkeys(max(1, min(count, tiles // 2)) for count in wanted)
    return [
        {
            "kernel": "mma", "warps": 1, "fragments": 1, "keys": _DIVIDED_KEYS, "splits": count,
            "grouped": rows is not attention,
        }
        for count in splits
    ]  # fmt: skip


def _mma_plan(attention: attention_match.Attention, parameters: Parameters) -> attention_mma.Plan:
    name = "f16" if attention.query.tensor.element == ir.F16Type.get() else "bf16"
    sizes = [int(parameters.get(key, 1)) for key in ("warps", "fragments", "keys", "splits")]
    return attention_mma.Plan(attention, name, *sizes)


# ---------------------------------------------------------------------------------------------------------------- wgmma


def _fits_wgmma(attention: attention_match.Attention, device: Device) -> bool:
    widths = (attention.width, attention.value_width)
    operands = ((attention.query, ROW), (attention.key, KEY), (attention.value, KEY), (attention.output, ROW))
    return (
        device.has_wgmma
        and _element(attention) in ("f16", "bf16")
        and all(width % 8 == 0 and width <= _WIDEST for width in widths)
        and all(can_copy(element, index) for element, index in operands)
    )


def _element(attention: attention_match.Attention) -> str | None:
    """The element type that Q, K, V and the output have in common."""
    kinds = {e.tensor.element for e in (attention.query, attention.key, attention.value, attention.output)}
    names = {ir.F16Type.get(): "f16", ir.BF16Type.get(): "bf16", ir.F32Type.get(): "f32"}
    return names.get(kinds.pop()) if len(kinds) == 1 else None


def _wgmma_candidates(attention: attention_match.Attention, device: Device) -> list[Parameters]:
    """Tile sizes that fit into registers and shared memory, what was fastest on an H200 for such widths first."""
    scores, found = scores_of(attention), list[Parameters]()
    for consumers in _consumers(attention):
        for keys in _keys(scores, consumers):
            for persistent in _persistent(scores, consumers, device):
                for stages in (2, 3):
                    choice: Parameters = {
                        "kernel": "wgmma", "consumers": consumers, "keys": keys, "stages": stages, "persistent": persistent,
                    }  # fmt: skip
                    for in_query in (False, True):
                        plan = _plan(attention, {**choice, "output_in_query": in_query})
                        if plan.shared_bytes <= device.shared_per_block:
                            found.append({**choice, "output_in_query": in_query})
                            break
    return found


def _plan(attention: attention_match.Attention, parameters: Parameters) -> Plan:
    return Plan(
        attention,
        str(_element(attention)),
        int(parameters["consumers"]),
        int(parameters["keys"]),
        int(parameters["stages"]),
        bool(parameters["persistent"]),
        bool(parameters["output_in_query"]),
    )


def _consumers(attention: attention_match.Attention) -> list[int]:
    """Three warpgroups have 160 registers a thread, two 240.  Fewer where rows would be left over."""
    order = [3, 2] if max(attention.width, attention.value_width) <= 64 else [2]
    needed = -(-attention.rows // 64)
    return [count for count in order if count <= needed] or [needed]


def _keys(scores: Scores, consumers: int) -> list[int]:
    """Keys of a tile: scores, weights, sums and what a formula reads must fit into registers."""
    wide = scores.attention.value_width > 128
    if scores.formula is not None:
        return [64] if wide or consumers == 3 else [64, 128]
    return [64] if wide else [128, 64]


def _persistent(scores: Scores, consumers: int, device: Device) -> list[bool]:
    """Tiles of unequal length balance better one by one; equal ones overlap their begin with the end of the one before."""
    attention = scores.attention
    tiles = -(-attention.rows // (64 * consumers)) * attention.batch
    if tiles <= device.multiprocessors:
        return [False]
    return [False, True] if scores.edge is not None else [True, False]
