"""Which kernel computes an attention on a device, with which tile sizes: all that fit, the one expected to be fastest first.

Orders and efficiencies are from measurements on an H200.
"""

from __future__ import annotations

from collections.abc import Iterator

from mlirstack.bindings import ir
from mlirstack.schedules.cuda.attention import attention_fma, attention_mma
from mlirstack.schedules.cuda.attention.attention_block import Plan, can_copy
from mlirstack.schedules.cuda.attention.attention_description import KEY, ROW, Attention
from mlirstack.schedules.cuda.attention.attention_scores import Scores, key_tiles, scores_of
from mlirstack.schedules.cuda.attention.attention_split import grouped
from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.emitter import Parameters

_WIDEST = 256  # columns of a head
_FEW_ROWS = 16  # queries of heads that share K and V: one fragment
_MANY_KEYS = 256
_DIVIDED_KEYS = 64  # of a tile, where keys are divided
_EFFICIENCY = {1: 0.65, 2: 0.92, 3: 1.0}  # of warpgroups that compute in one block, where all blocks are full
_STAYING = 1.12  # how much more efficient two warpgroups are whose blocks stay for several causal tiles, or read masks
_MIDDLING_KEYS, _LONGEST_STAY = 4096, 8192  # keys up to which that is so, and up to which causal blocks stay at all
_MANY_WAVES = 4  # from here on it does not matter whether the last wave of blocks is full
_CACHE = 24 << 20  # bytes of the L2 cache for K and V of the heads that are being worked on
_TILE_COST = 1.0  # what a tile of query rows costs besides its tiles of keys, in those


def candidates(attention: Attention, device: Device) -> list[Parameters]:
    """Parameters of all kernels that can compute it; none for element types or widths that no kernel takes."""
    f16, bf16, f32 = ir.F16Type.get(), ir.BF16Type.get(), ir.F32Type.get()
    operands = {e.tensor.element for e in (attention.query, attention.key, attention.value)}
    output = attention.output.tensor.element
    if max(attention.width, attention.value_width) > _WIDEST or len(operands) != 1:
        return []
    if operands == {f32} and output == f32:
        return _fma_candidates(attention, device)
    if not operands <= {f16, bf16} or output not in (f16, bf16, f32):
        return []
    found = _divided_candidates(attention, device)
    if _fits_wgmma(attention, device):
        found += _wgmma_candidates(attention, device)
    return found + _mma_candidates(attention, device)


def element_name(attention: Attention) -> str:
    """ "f16" or "bf16": the type of Q, K and V."""
    return "f16" if attention.query.tensor.element == ir.F16Type.get() else "bf16"


# ------------------------------------------------------------------------------------------------------------- fma, mma


def _fma_candidates(attention: Attention, device: Device) -> list[Parameters]:
    """Tiles of as many keys as leave room for two blocks on a multiprocessor first."""
    sizes = {keys: attention_fma.Plan(attention, keys).shared_bytes for keys in (64, 32, 16)}
    fitting = [keys for keys, size in sizes.items() if size <= device.shared_per_block]
    two = [keys for keys in fitting if 2 * sizes[keys] <= device.shared_per_multiprocessor]
    return [{"kernel": "fma", "keys": keys} for keys in dict.fromkeys([*two, *fitting])]


def _mma_candidates(attention: Attention, device: Device) -> list[Parameters]:
    """Two fragments a warp read K and V half as often, where registers allow it."""
    width = max(attention.width, attention.value_width)
    order = [(4, 2, 64), (4, 1, 64)] if width <= 64 else [(4, 1, 64), (8, 1, 64), (4, 1, 32)]
    if width > 128:
        order = [(4, 1, 32), (8, 1, 32)]
    if attention.rows <= 64:
        order = [choice for choice in order if choice[:2] == (4, 1)]
    found: list[Parameters] = [
        {"kernel": "mma", "warps": warps, "fragments": fragments, "keys": keys} for warps, fragments, keys in order
    ]
    return [choice for choice in found if mma_plan(attention, choice).shared_bytes <= device.shared_per_block]


def _divided_candidates(attention: Attention, device: Device) -> list[Parameters]:
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


def mma_plan(attention: Attention, parameters: Parameters) -> attention_mma.Plan:
    """The plan that parameters with ``kernel = "mma"`` name."""
    sizes = [int(parameters.get(key, 1)) for key in ("warps", "fragments", "keys", "splits")]
    return attention_mma.Plan(attention, element_name(attention), *sizes)


# ---------------------------------------------------------------------------------------------------------------- wgmma


def _fits_wgmma(attention: Attention, device: Device) -> bool:
    operands = ((attention.query, ROW), (attention.key, KEY), (attention.value, KEY), (attention.output, ROW))
    return (
        device.has_wgmma
        and attention.output.tensor.element == attention.query.tensor.element
        and all(width % 8 == 0 for width in (attention.width, attention.value_width))
        and all(can_copy(element, index) for element, index in operands)
    )


def _wgmma_candidates(attention: Attention, device: Device) -> list[Parameters]:
    scores, found = scores_of(attention), list[Parameters]()
    shapes = sorted(_shapes(attention), key=lambda shape: _time(scores, shape[0], shape[1], device))
    for consumers, blocks in shapes:
        for keys in _keys(scores, consumers, blocks):
            for persistent in _persistent(scores, consumers, blocks, device):
                for ordered in _ordered(scores, consumers):
                    choice: Parameters = {
                        "kernel": "wgmma", "consumers": consumers, "blocks": blocks, "keys": keys, "stages": 2,
                        "persistent": persistent, "ordered": ordered,
                        "heads": _heads_together(scores, 64 * consumers, keys, device) if persistent else 1,
                    }  # fmt: skip
                    found += _fitting(attention, choice, device)
    return found


def _heads_together(scores: Scores, rows: int, keys: int, device: Device) -> int:
    """Heads whose tiles blocks that stay go through together: as divides the work best, where tiles of a head differ.

    Block b has tiles b, b + blocks, b + 2 · blocks, …; K and V of the heads should stay in the L2 cache meanwhile.
    """
    attention = scores.attention
    if scores.edge is None:
        return 1
    row_tiles = -(-attention.rows // rows)
    costs = [key_tiles(scores, rows, keys, row_tiles - 1 - block) + _TILE_COST for block in range(row_tiles)]
    fitting = max(1, _CACHE // ((attention.width + attention.value_width) * 2 * attention.keys))
    sizes = [heads for heads in range(1, min(fitting, attention.batch) + 1) if attention.batch % heads == 0]

    def longest(heads: int) -> float:
        order = [costs[member // heads] for member in range(row_tiles * heads)] * (attention.batch // heads)
        return max(sum(order[block :: device.multiprocessors]) for block in range(device.multiprocessors))

    return min(sizes, key=longest)


def _fitting(attention: Attention, choice: Parameters, device: Device) -> Iterator[Parameters]:
    """``choice`` if its tiles fit into shared memory, where need be with one buffer for Q, then the output in its place."""
    room = min(device.shared_per_block, device.shared_per_multiprocessor // int(choice["blocks"]) - 1024)
    for query_stages, in_query in ((2, False), (1, False), (1, True))[0 if choice["persistent"] else 1 :]:
        altered = {**choice, "output_in_query": in_query, "query_stages": query_stages}
        if wgmma_plan(attention, altered).shared_bytes <= room:
            yield altered
            return


def wgmma_plan(attention: Attention, parameters: Parameters) -> Plan:
    """The plan that parameters with ``kernel = "wgmma"`` name."""
    return Plan(
        attention,
        element_name(attention),
        consumers=int(parameters["consumers"]),
        blocks=int(parameters["blocks"]),
        keys=int(parameters["keys"]),
        stages=int(parameters["stages"]),
        persistent=bool(parameters["persistent"]),
        output_in_query=bool(parameters["output_in_query"]),
        query_stages=int(parameters["query_stages"]),
        ordered=bool(parameters["ordered"]),
        heads=int(parameters["heads"]),
    )


def _shapes(attention: Attention) -> list[tuple[int, int]]:
    """Warpgroups that compute, and blocks of a multiprocessor: three have 160 registers a thread, two 240."""
    width, needed = max(attention.width, attention.value_width), -(-attention.rows // 64)
    shapes = [(3, 1)] * (width <= 64) + [(2, 1)] + [(1, 2)] * (width <= 128)
    fitting = [shape for shape in shapes if shape[0] <= needed]
    return fitting or [(1, 1)]


def _time(scores: Scores, consumers: int, blocks: int, device: Device) -> float:
    """Relative: waves of blocks, times the rows that a multiprocessor works on, over how well it does so."""
    attention = scores.attention
    tiles, slots = -(-attention.rows // (64 * consumers)) * attention.batch, device.multiprocessors * blocks
    waves = tiles / slots
    if waves < _MANY_WAVES:
        waves = -(-tiles // slots)
    efficiency = _EFFICIENCY[min(3, consumers * blocks)]
    causal = scores.edge is not None and attention.keys <= _MIDDLING_KEYS
    if consumers == 2 and tiles > slots and (causal or scores.formula is not None):
        efficiency *= _STAYING
    return waves * consumers * blocks / efficiency * (1.02 if blocks > 1 else 1.0)


def _keys(scores: Scores, consumers: int, blocks: int) -> list[int]:
    """Keys of a tile: scores, weights, sums and what a formula reads must fit into registers."""
    wide = scores.attention.value_width > 128
    if scores.formula is not None:
        return [64] if wide or consumers == 3 else [128, 64]
    return [64] if wide else [128, 64]


def _persistent(scores: Scores, consumers: int, blocks: int, device: Device) -> list[bool]:
    """Blocks that stay find their next Q, K and V in shared memory when a tile ends.

    Measured on an H200: 30 % faster with 512 keys, 10 % with 2048.  Not for three warpgroups that compute: their 160
    registers hold a loop over tiles with edges badly (half as fast), and long tiles need it less.
    """
    attention = scores.attention
    tiles = -(-attention.rows // (64 * consumers)) * attention.batch
    if tiles <= device.multiprocessors * blocks or (consumers == 3 and scores.edge is not None):
        return [False]
    too_long = scores.edge is not None and attention.keys > _LONGEST_STAY
    one_query = attention.width > 128  # there is no room for a second one: nothing to gain
    return [False, True] if consumers == 3 or too_long or one_query else [True, False]


def _ordered(scores: Scores, consumers: int) -> list[bool]:
    """Turns between warpgroups are worth 1 to 2 % where products are wide and tiles differ, and cost as much elsewhere."""
    if consumers == 1:
        return [False]
    attention = scores.attention
    gains = scores.edge is not None and 64 < attention.width <= 128 and attention.keys <= _MIDDLING_KEYS
    return [True, False] if gains else [False, True]
