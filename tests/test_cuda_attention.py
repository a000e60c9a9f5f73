"""Attention on CUDA: what is found in graphs, and what its kernels compute, on a SIMT emulator against float64."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from simt.models import run_model
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

import mlirstack as ms
from mlirstack import zoo
from mlirstack.bindings import ir
from mlirstack.ir.ops import function
from mlirstack.passes.cuda import map_kernels
from mlirstack.schedules.cuda.attention import attention_layout
from mlirstack.schedules.cuda.attention.attention_choice import candidates
from mlirstack.schedules.cuda.attention.attention_claim import claim
from mlirstack.schedules.cuda.attention.attention_description import Attention as AttentionMatch
from mlirstack.schedules.cuda.attention.attention_layout import Dimension, Layout
from mlirstack.schedules.cuda.attention.attention_match import find, match
from mlirstack.schedules.cuda.attention.attention_scores import scores_of
from mlirstack.schedules.cuda.device import device_of
from mlirstack.schedules.cuda.emitter import Choice
from mlirstack.schedules.cuda.graph import KernelGraph

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
TOLERANCE = {F32: 1e-6, F16: 1e-3, BF16: 6e-3}  # relative L2: the rounding of weights and result, and a margin


# --------------------------------------------------------------------------------------------------------------- layouts


def places(digits: Dimension) -> list[int]:
    """The place of every index of a dimension."""
    return [sum(i * s for i, (_, s) in zip(index, digits, strict=True)) for index in itertools.product(*map(_range, digits))]


def _range(digit: tuple[int, int]) -> range:
    return range(digit[0])


def test_a_dimension_is_cut_where_digits_allow_it() -> None:
    digits = ((2, 100), (12, 1))
    assert attention_layout.split(digits, (4, 6)) == [((2, 100), (2, 6)), ((6, 1),)]
    assert attention_layout.split(digits, (8, 3)) == [((2, 100), (4, 3)), ((3, 1),)]
    assert attention_layout.split(digits, (3, 8)) is None


def test_composition_reads_one_dimension_through_another() -> None:
    outer, inner = ((2, 100), (3, 0), (4, 1)), ((2, 12), (4, 1))
    composed = attention_layout.compose(outer, inner)
    assert composed is not None
    assert places(composed) == [places(outer)[i] for i in places(inner)]


def test_heads_side_by_side_in_a_row_are_a_strided_view() -> None:
    packed = Layout.dense((2, 7, 96)).slice((0, 0, 32), (2, 7, 32), (1, 1, 1))
    assert packed is not None
    heads = packed.expand([[0], [1], [2, 3]], (2, 7, 4, 8))
    assert heads is not None
    view = heads.permute((0, 2, 1, 3)).collapse([[0, 1], [2], [3]])
    array = np.arange(2 * 7 * 96).reshape(2, 7, 96)[:, :, 32:64].reshape(2, 7, 4, 8).transpose(0, 2, 1, 3).reshape(8, 7, 8)
    got = [view.offset + sum(p) for p in itertools.product(*map(places, view.dimensions))]
    assert got == array.ravel().tolist()


# -------------------------------------------------------------------------------------------------------------- matching


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("sdpa_gqa", 1),
        ("sdpa_causal", 1),
        ("sdpa_bool_mask", 1),
        ("sdpa_bf16", 1),
        ("attention_by_hand", 1),
        ("multihead_attention", 0),
        ("transformer_decoder", 2),
        ("bert_like", 2),
        ("vit_like", 2),
        ("llama_like_bf16", 2),
    ],
)
def test_attention_is_claimed_in_models(name: str, count: int) -> None:
    model = zoo.get(name)
    lowering = ms.lower(model.module, model.inputs, target="cpu", to="fused")
    with lowering.payload.context, ir.Location.unknown():
        groups = claim(body_of(lowering.payload))
        assert lowering.payload.operation.verify()
        matched = [match(KernelGraph(group)) for group in groups]
        assert len(groups) == count
        assert None not in matched
        for group in groups:  # only the last op's result leaves, so that the group can be a function
            users = [use.owner.operation for op in group[:-1] for result in op.results for use in result.uses]
            assert set(users) <= set(group)


def test_weights_that_are_returned_keep_attention_from_being_one_kernel() -> None:
    model = zoo.get("multihead_attention")
    lowering = ms.lower(model.module, model.inputs, target="cpu", to="fused")
    with lowering.payload.context, ir.Location.unknown():
        _, refused = find(KernelGraph(body_of(lowering.payload)))
        assert [refusal.reason for refusal in refused] == ["the scores or weights are needed outside of the attention"]


def body_of(module: Any) -> list[Any]:
    """The ops of ``@main``."""
    return [op.operation for op in function(module, "main").regions[0].blocks[0].operations]


class Call(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, compute: Callable[..., Tensor]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.compute(*inputs)


def found_in(compute: Callable[..., Tensor], inputs: Sequence[Tensor]) -> tuple[ms.Lowering, AttentionMatch]:
    """The only attention of a function; the lowering must live as long as it."""
    lowering = ms.lower(Call(compute), tuple(inputs), target="cpu", to="fused")
    with lowering.payload.context, ir.Location.unknown():
        (group,) = claim(body_of(lowering.payload))
        attention = match(KernelGraph(group))
    assert attention is not None
    return lowering, attention


def heads(batch: int, count: int, length: int, width: int, dtype: torch.dtype = F32) -> Tensor:
    """Random numbers in the layout of Q."""
    return torch.randn(batch, count, length, width, dtype=dtype)


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Query i sees keys 0 to i."""
    return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


def packed_heads(x: Tensor) -> Tensor:
    """Q, K and V of four heads side by side in each row, as a GPT computes them."""
    q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in x.chunk(3, dim=-1))
    return causal(q, k, v).transpose(1, 2).flatten(-2)


def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Written with a triangular matrix, the scores divided."""
    length = q.shape[-2]
    scores = q @ k.transpose(-2, -1) / 4.0
    scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), -torch.inf)
    return scores.softmax(-1) @ v


def test_repeated_heads_are_read_once() -> None:
    lowering, attention = found_in(causal, [heads(2, 8, 6, 16), heads(2, 2, 6, 16), heads(2, 2, 6, 16)])
    with lowering.payload.context:
        assert attention.key.tensor.shape == (2, 2, 6, 16)
        assert attention.key.layout.dimensions[0] == ((4, 96), (4, 0))
        assert (attention.batch, attention.factor) == (16, 0.25)
        assert scores_of(attention).edge == 0


def test_heads_in_a_packed_row_are_read_in_place() -> None:
    lowering, attention = found_in(packed_heads, [torch.randn(2, 7, 96)])
    with lowering.payload.context:
        assert attention.query.tensor is attention.key.tensor is attention.value.tensor
        assert [e.layout.offset for e in (attention.query, attention.key, attention.value)] == [0, 32, 64]
        assert attention.key.layout.dimensions[:3] == (((2, 672), (4, 8)), ((7, 0),), ((7, 96),))
        assert attention.output.layout.dimensions == (((2, 224), (4, 8)), ((7, 32),), ((7, 0),), ((8, 1),))


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_scores_divided_by_a_constant_are_a_factor(dtype: torch.dtype) -> None:
    lowering, attention = found_in(by_hand, [heads(1, 2, 10, 24, dtype)] * 3)
    with lowering.payload.context:
        scores = scores_of(attention)
        assert (scores.formula, scores.factor, scores.edge) == (None, 0.25, 0)


def test_a_mask_of_keys_stays_a_formula() -> None:
    mask = torch.zeros(2, 1, 1, 9)
    inputs = [heads(2, 3, 5, 8), heads(2, 3, 9, 8), heads(2, 3, 9, 8), mask]
    lowering, attention = found_in(scaled_dot_product_attention, inputs)
    with lowering.payload.context:
        scores = scores_of(attention)
        assert scores.edge is None
        (read,) = scores.masks
        assert read.layout.dimensions == (((2, 9), (3, 0)), ((5, 0),), ((9, 1),), ((8, 0),))


# -------------------------------------------------------------------------------------------------------------- kernels


@dataclass(frozen=True)
class Case:
    """A function of Q, K, V and maybe a mask; the answer is that of eager in float64."""

    name: str
    arch: str
    kernel: str
    inputs: Callable[[], list[Tensor]]
    compute: Callable[..., Tensor] = scaled_dot_product_attention


CASES = [
    Case("causal", "sm_80", "fma", lambda: [heads(1, 1, 100, 40), heads(1, 1, 37, 40), heads(1, 1, 37, 40)], causal),
    Case("odd_widths", "sm_80", "fma", lambda: [heads(1, 1, 17, 13), heads(1, 1, 33, 13), heads(1, 1, 33, 129)]),
    Case("packed", "sm_80", "fma", lambda: [torch.randn(2, 19, 96)], packed_heads),
    Case("added_mask", "sm_80", "fma", lambda: [heads(2, 2, 9, 8), *[heads(2, 2, 50, 8)] * 2, torch.randn(2, 1, 1, 50)]),
    Case("masked_rows", "sm_80", "fma", lambda: [*[heads(1, 2, 21, 8)] * 3, torch.rand(1, 1, 21, 21) > 0.93]),
    Case("causal", "sm_80", "mma", lambda: [heads(1, 2, 130, 128, F16), *[heads(1, 2, 131, 128, F16)] * 2], causal),
    Case("groups", "sm_80", "mma", lambda: [heads(1, 4, 65, 32, BF16), *[heads(1, 2, 65, 32, BF16)] * 2], causal),
    Case("wide", "sm_80", "mma", lambda: [heads(1, 1, 65, 256, BF16), *[heads(1, 1, 40, 256, BF16)] * 2]),
    Case("added_mask", "sm_80", "mma", lambda: [*[heads(1, 2, 34, 40, BF16)] * 3, torch.randn(34, 34, dtype=BF16)]),
    Case("odd_width", "sm_80", "mma", lambda: [*[heads(2, 2, 35, 13, F16)] * 3, torch.rand(2, 1, 1, 35) > 0.3]),
    Case("few_rows", "sm_80", "mma", lambda: [heads(2, 4, 3, 64, BF16), *[heads(2, 2, 300, 64, BF16)] * 2], causal),
    Case("two_tiles", "sm_90a", "wgmma", lambda: [heads(1, 2, 130, 128, BF16), *[heads(1, 2, 150, 128, BF16)] * 2]),
    Case("causal", "sm_90a", "wgmma", lambda: [heads(1, 1, 200, 64, F16)] * 3, causal),
    Case("groups", "sm_90a", "wgmma", lambda: [heads(1, 4, 65, 32, BF16), *[heads(1, 2, 65, 32, BF16)] * 2], causal),
    Case("wide", "sm_90a", "wgmma", lambda: [heads(1, 1, 70, 256, BF16), *[heads(1, 1, 70, 256, BF16)] * 2]),
    Case("packed", "sm_90a", "wgmma", lambda: [torch.randn(2, 40, 96, dtype=F16)], packed_heads),
    Case("by_hand", "sm_90a", "wgmma", lambda: [heads(1, 2, 100, 24, BF16)] * 3, by_hand),
    Case("added_mask", "sm_90a", "wgmma", lambda: [*[heads(1, 2, 34, 40, BF16)] * 3, torch.randn(34, 34, dtype=BF16)]),
]


@pytest.mark.portable
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kernel}_{case.name}")
def test_kernel_computes_what_eager_does(case: Case) -> None:
    torch.manual_seed(0)
    inputs = case.inputs()
    lowering = ms.lower(Call(case.compute), tuple(inputs), target=f"cuda:{case.arch}", to="mapped")
    (got,) = run_model(lowering, inputs)
    expected = case.compute(*(x.double() if x.is_floating_point() else x for x in inputs))
    error = (got.double() - expected).norm() / expected.norm()
    assert kernels_in(lowering) == [case.kernel]
    assert error < TOLERANCE[got.dtype]


@pytest.mark.portable
@pytest.mark.parametrize(
    ("compute", "shape", "keys", "changes"),
    [
        (causal, (1, 4, 200, 64), 256, {"ordered": True, "heads": 4}),
        (causal, (1, 2, 300, 128), 120, {"ordered": False, "heads": 2}),
        (scaled_dot_product_attention, (1, 2, 200, 64), 256, {"ordered": True, "consumers": 3}),
    ],
    ids=["heads_together", "few_keys", "three_in_turns"],
)
def test_blocks_that_stay_for_several_tiles(
    compute: Callable[..., Tensor],
    shape: tuple[int, ...],
    keys: int,
    changes: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(shape, dtype=BF16), *(torch.randn(*shape[:2], keys, shape[3], dtype=BF16) for _ in range(2))]
    device = replace(device_of("sm_90a"), multiprocessors=2)
    lowering, attention = found_in(compute, inputs)
    with lowering.payload.context:
        staying = next(choice for choice in candidates(attention, device) if choice.get("persistent"))
    monkeypatch.setattr(map_kernels, "device_of", lambda arch: device)
    monkeypatch.setattr(map_kernels, "choice_of", lambda function: Choice("attention", {**staying, **changes}))
    got = run(compute, inputs, "sm_90a")
    expected = compute(*(x.double() for x in inputs))
    assert (got.double() - expected).norm() / expected.norm() < TOLERANCE[BF16]


def kernels_in(lowering: ms.Lowering) -> list[str]:
    """Which kernels the schedules of a lowered module name."""
    return re.findall(r'mlirstack.schedule = \{.*?kernel = "(\w+)"', str(lowering.payload))


def test_a_row_without_keys_is_nan_unless_the_graph_says_zero() -> None:
    q = k = v = heads(1, 1, 4, 8)
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[2] = False
    zeros = run(scaled_dot_product_attention, [q, k, v, mask])
    nans = run(lambda q, k, v, m: (q @ k.mT).masked_fill(~m, -torch.inf).softmax(-1) @ v, [q, k, v, mask])
    assert (zeros[..., 2, :] == 0).all()
    assert nans[..., 2, :].isnan().all()
    assert nans[..., [0, 1, 3], :].isfinite().all()


def run(compute: Callable[..., Tensor], inputs: Sequence[Tensor], arch: str = "sm_80") -> Tensor:
    """What the kernels of a function compute."""
    (got,) = run_model(ms.lower(Call(compute), tuple(inputs), target=f"cuda:{arch}", to="mapped"), inputs)
    return got


@pytest.mark.target
@pytest.mark.parametrize(("size", "is_causal"), [(64, True), (128, False), (256, False)])
def test_hopper_kernel_keeps_everything_in_registers(size: int, is_causal: bool) -> None:
    inputs = [heads(1, 2, 1024, size, BF16)] * 3
    compute = causal if is_causal else scaled_dot_product_attention
    lowering = ms.lower(Call(compute), tuple(inputs), target="cuda:sm_90a", to="sass")
    listing = lowering.payload.text
    assert "HGMMA" in listing
    assert "UTMALDG" in listing
    assert "UTMASTG" in listing
    assert not re.search(r"\b(LDL|STL)\b", listing)


def test_parameter_sets_differ_and_name_both_tensor_core_kernels() -> None:
    lowering, attention = found_in(causal, [heads(1, 2, 200, 64, F16)] * 3)
    with lowering.payload.context:
        found = candidates(attention, device_of("sm_90a"))
        assert {choice["kernel"] for choice in found} == {"wgmma", "mma"}
        assert len({tuple(choice.items()) for choice in found}) == len(found)
