"""Matrix products for Hopper: which shapes are taken, what the assembler makes of them, answers in the emulator."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from cuda_products import TF32_TOLERANCE, TOLERANCE, Product, emitted, graph_of
from simt import run_plan

from mlirstack.bindings import ir, new_context
from mlirstack.ir.ops import functions
from mlirstack.passes.cuda.cubin import assemble
from mlirstack.passes.cuda.device_code import TranslateKernels
from mlirstack.passes.cuda.nvvm import NVVM_STEPS
from mlirstack.passes.cuda.ptx import CompilePtx
from mlirstack.passes.cuda.sass import sass_text
from mlirstack.pipeline.runner import run_steps
from mlirstack.schedules.cuda.device import DEVICES
from mlirstack.schedules.cuda.emitter import Emitter, Parameters
from mlirstack.schedules.cuda.wgmma.gemm_skinny import SkinnyGemm
from mlirstack.schedules.cuda.wgmma.gemm_wgmma import WgmmaGemm, parameters_of
from mlirstack.schedules.cuda.wgmma.wgmma_tile import WgmmaTile

HOPPER = DEVICES["sm_90a"]
WGMMA, SKINNY = WgmmaGemm(), SkinnyGemm()


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with new_context(), ir.Location.unknown():
        yield


def candidates(product: Product, emitter: Emitter = WGMMA, device: Any = HOPPER) -> list[Parameters]:
    module = ir.Module.parse(product.text())
    return emitter.candidates(graph_of(module), device)


# ---------------------------------------------------------------------------------------------------------------- choice


@pytest.mark.portable
def test_only_sm_90a_has_wgmma() -> None:
    assert candidates(Product(512, 512, 512), device=DEVICES["sm_90"]) == []


@pytest.mark.portable
@pytest.mark.parametrize(
    "product",
    [
        Product(16, 16, 16),
        Product(512, 512, 512, "f32", "f32"),  # TF32 is not allowed
        Product(64, 64, 65),  # copies would cost more than the product
    ],
    ids=str,
)
def test_left_to_other_emitters(product: Product) -> None:
    assert candidates(product) == []


@pytest.mark.portable
def test_tf32_is_taken_where_it_is_allowed() -> None:
    assert candidates(Product(512, 512, 512, "f32", "f32", tf32=True))


@pytest.mark.portable
@pytest.mark.parametrize(("a", "b", "copies"), [("mk", "kn", 0), ("km", "nk", 0), ("km", "kn", 1)])
def test_tf32_factors_are_read_where_they_lie(a: str, b: str, copies: int) -> None:
    module = emitted(Product(512, 512, 512, "f32", "f32", a, b, tf32=True), WGMMA, HOPPER)
    assert str(module).count("gpu.func") == 1 + copies


@pytest.mark.portable
def test_large_products_get_large_tiles() -> None:
    best = candidates(Product(4096, 4096, 4096))[0]
    assert {best["rows"], best["columns"]} == {128, 256}


@pytest.mark.portable
def test_products_smaller_than_the_chip_get_small_tiles_or_share_k() -> None:
    best = candidates(Product(1024, 1024, 1024))[0]
    assert (best["rows"], best["columns"], best["consumers"]) == (64, 128, 1)  # two would read B from shared memory twice
    assert int(candidates(Product(128, 512, 2048))[0]["split"]) > 1


@pytest.mark.portable
def test_tiles_are_as_wide_as_gives_each_multiprocessor_one() -> None:
    best = candidates(Product(1000, 1544, 2048))[0]
    assert (best["rows"], best["columns"]) == (64, 200)  # 16 x 8 tiles; 16 x 7 of the usual width
    best = candidates(Product(512, 14336, 4096))[0]
    assert (best["rows"], best["columns"]) == (128, 224)  # 4 x 64 tiles, two for each; 4 x 56 of the usual width
    assert all(int(c["columns"]) % 64 == 0 for c in candidates(Product(1000, 1544, 2048, b="kn")))
    # Rows of an odd pitch are copied anyway, K contiguous: then tiles are as wide as fits.
    assert any(int(c["columns"]) == 104 for c in candidates(Product(1000, 1545, 2048, b="kn")))


@pytest.mark.portable
def test_rows_that_begin_between_words_are_stored_by_two_warpgroups() -> None:
    best = candidates(Product(1000, 1545, 2048))[0]
    assert (best["rows"], best["columns"], best["consumers"]) == (128, 104, 2)  # 64 x 200 by one is 1.27 times as slow


@pytest.mark.portable
def test_factors_that_the_copy_engine_reads_slowly_are_shared() -> None:
    found = candidates(Product(1000, 1544, 2040))  # rows of 4080 bytes
    assert found[0]["multicast"] == "both"
    assert [c["columns"] for c in found if c["multicast"] == "turns"][:1] == [104]  # to be measured: 30 clusters of four
    assert not any(c["multicast"] == "turns" for c in candidates(Product(1000, 1544, 2048)))


@pytest.mark.portable
def test_warpgroups_take_turns_only_where_each_gets_a_tile() -> None:
    assert not any(c["pingpong"] for c in candidates(Product(1000, 1544, 2040)))
    assert any(c["pingpong"] for c in candidates(Product(2048, 2048, 2048)))


@pytest.mark.portable
def test_integers_come_in_fewer_widths() -> None:
    found = {int(c["columns"]) for c in candidates(Product(1000, 1544, 2048, "i8", "i32")) if c["consumers"] == 1}
    assert found and all(columns % 16 == 0 for columns in found)


@pytest.mark.portable
def test_candidates_differ() -> None:
    found = candidates(Product(2048, 2048, 2048))
    assert 8 <= len(found) <= 40
    assert len({tuple(sorted(c.items())) for c in found}) == len(found)


@pytest.mark.portable
@pytest.mark.parametrize(("layouts", "side", "size"), [({"a": "km"}, "a", "rows"), ({"b": "kn"}, "b", "columns")])
def test_two_blocks_share_a_factor_only_in_whole_boxes(layouts: dict[str, str], side: str, size: str) -> None:
    # Rows that are contiguous come in boxes of 64: of one there is no half; blocks that copied nothing would wait forever.
    shared = [c for c in candidates(Product(1024, 1024, 1024, **layouts)) if c["multicast"] in (side, "both")]
    assert all(int(c[size]) % 128 == 0 for c in shared)


@pytest.mark.portable
def test_halves_of_a_shared_factor_begin_where_the_swizzle_does() -> None:
    shared = [c for c in candidates(Product(1000, 1544, 2040)) if c["multicast"] == "b"]
    assert shared and all(int(c["columns"]) % 16 == 0 for c in shared)


@pytest.mark.portable
@pytest.mark.parametrize("rows", [1, 4])
def test_few_rows_are_streamed(rows: int) -> None:
    assert candidates(Product(rows, 4096, 4096), SKINNY)[0]["kind"] == "stream"


@pytest.mark.portable
@pytest.mark.parametrize(("tf32", "kinds"), [(False, {"stream"}), (True, {"wgmma"})])
def test_more_rows_are_streamed_where_tensor_cores_do_not_take_them(tf32: bool, kinds: set[str]) -> None:
    product = Product(16, 4096, 4096, "f32", "f32", tf32=tf32)
    assert {c["kind"] for c in candidates(product, SKINNY)} == kinds
    assert candidates(replace(product, m=17, tf32=False), SKINNY) == []


@pytest.mark.portable
@pytest.mark.parametrize("rows", [5, 16, 64])
def test_up_to_64_rows_are_columns_of_a_wgmma(rows: int) -> None:
    best = candidates(Product(rows, 4096, 4096), SKINNY)[0]
    assert (best["kind"], best["columns"], best["split"]) == ("wgmma", -(-rows // 8) * 8, 2)


@pytest.mark.portable
def test_streaming_needs_no_tensor_cores() -> None:
    assert {c["kind"] for c in candidates(Product(2, 4096, 4096), SKINNY, DEVICES["sm_80"])} == {"stream"}


# -------------------------------------------------------------------------------------------------------------- assembler


def tile(rows: int, columns: int, stages: int, **options: Any) -> Parameters:
    return parameters_of(WgmmaTile(rows, columns, stages, **options))


def assembled(module: Any) -> tuple[dict[str, Any], str]:
    """Resources of each kernel and the disassembly of all."""
    code, resources = assemble(ptx_of_module(module), "sm_90a")
    return resources, sass_text(code)


def ptx_of_module(module: Any) -> str:
    for function in list(functions(module)):
        function.operation.erase()  # what is left are the kernels, which need no launch plan
    run_steps(NVVM_STEPS, module)
    return CompilePtx("sm_90a").translate(TranslateKernels().translate(module)).body


@pytest.mark.target
@pytest.mark.parametrize(
    ("product", "parameters"),
    [
        (Product(512, 512, 512), tile(128, 256, 4)),
        (Product(512, 512, 512, a="km", b="kn"), tile(256, 128, 4, multicast="a")),
        (Product(512, 512, 512, bias=True, activation="gelu"), tile(128, 256, 4, multicast="b")),
        (Product(512, 512, 512, bias=True), tile(128, 256, 4)),
        (Product(500, 515, 512), tile(128, 128, 6)),
        (Product(512, 512, 512, "f16", "f32", bias=True, activation="silu", residual=True), tile(128, 192, 4)),
        (Product(513, 771, 512, "f16", "f16", residual=True), tile(128, 128, 6)),
        (Product(128, 512, 1024), tile(64, 128, 6, split=2)),
        (Product(256, 512, 1024), tile(128, 128, 4, split=4)),
        (Product(512, 512, 512, bias=True, activation="silu", residual=True), tile(128, 128, 6, pingpong=True)),
        (Product(512, 512, 512, "f8E4M3FN"), tile(64, 256, 4)),
        (Product(512, 512, 512, "i8", "i32"), tile(128, 128, 6)),
        (Product(512, 512, 512, "f32", "f32", tf32=True), tile(128, 256, 4)),
        (Product(512, 512, 512, "f32", "f32", bias=True, activation="gelu", tf32=True), tile(256, 128, 4)),
        (Product(512, 512, 512, "f32", "f32", b="kn", tf32=True, residual=True), tile(128, 128, 6, pingpong=True)),
        (Product(512, 512, 512, "f32", "f32", a="km", tf32=True), tile(128, 256, 4)),
        (Product(128, 512, 1024, "f32", "f32", tf32=True), tile(64, 128, 6, split=2)),
    ],
    ids=str,
)
def test_tensor_cores_and_no_spills(product: Product, parameters: Parameters) -> None:
    resources, text = assembled(emitted(product, WGMMA, HOPPER, parameters))
    assert all(found.spill_bytes == found.stack_bytes == 0 for found in resources.values())
    # ptxas runs wgmmas one after the other where something reads their results too early.
    assert [found.warning for found in resources.values() if found.warning] == []
    assert re.search(r"\b[HQI]GMMA\b", text)
    assert bool(re.search(r"HGMMA\S+\.TF32", text)) == product.tf32
    assert "UTMALDG" in text
    assert "MEMBAR.ALL.GPU" not in text
    assert "MEMBAR.SC" not in text


@pytest.mark.target
def test_aligned_outputs_leave_through_the_copy_engine_others_by_the_threads() -> None:
    _, aligned = assembled(emitted(Product(256, 256, 256), WGMMA, HOPPER, tile(128, 128, 6)))
    _, ragged = assembled(emitted(Product(256, 257, 256), WGMMA, HOPPER, tile(128, 128, 6)))
    assert ("UTMASTG" in aligned, "STSM" in aligned) == (True, True)
    assert ("UTMASTG" in ragged, "STSM" in ragged) == (False, True)
    assert re.search(r"\bSTG\.E desc", ragged)  # words, not only single elements


# --------------------------------------------------------------------------------------------------------------- emulator


def answer(product: Product, emitter: Emitter, parameters: Parameters | None, device: Any = HOPPER) -> float:
    """Relative error of the emulated kernel's answer."""
    module = emitted(product, emitter, device, parameters)
    arrays = product.inputs()
    (got,) = run_plan(module, arrays)
    return product.error(got, arrays)


@pytest.mark.portable
@pytest.mark.parametrize(
    "product",
    [
        Product(1, 64, 512),
        Product(3, 70, 1001, bias=True, activation="silu"),
        Product(4, 130, 600, "f32", "f32", bias=True, residual=True),
        Product(16, 68, 600, "f32", "f32", bias=True, activation="gelu"),
        Product(30, 13, 265, "f32", "f32", residual=True),
        Product(200, 2, 512, residual=True),
        Product(2, 64, 512, batch=(2, 3), shared=True, bias=True),
        Product(2, 64, 256, "f16", "f16", batch=(3,)),
    ],
    ids=str,
)
@pytest.mark.parametrize("columns", [1, 2])
def test_streamed_products(product: Product, columns: int) -> None:
    parameters: Parameters = {"kind": "stream", "columns": columns, "k_warps": 4, "unroll": 2}
    assert answer(product, SKINNY, parameters) < TOLERANCE[product.result]


@pytest.mark.target
def test_sums_of_streamed_products_stay_in_registers() -> None:
    product = Product(16, 512, 4096, "f32", "f32", bias=True)
    parameters: Parameters = {"kind": "stream", "columns": 4, "k_warps": 4, "unroll": 4}
    resources, _ = assembled(emitted(product, SKINNY, HOPPER, parameters))
    assert all(found.spill_bytes == found.stack_bytes == 0 for found in resources.values())


FOUR = replace(HOPPER, multiprocessors=4)  # so that blocks have several tiles each
TENSOR_CORE_CASES = [
    (Product(130, 140, 100, bias=True), tile(64, 128, 3)),
    (Product(300, 300, 200, bias=True, activation="silu", residual=True), tile(128, 128, 3)),
    (Product(300, 304, 200), tile(128, 256, 2)),
    (Product(300, 304, 200, a="km", b="kn"), tile(256, 128, 2)),
    (Product(300, 304, 264, a="km"), tile(128, 128, 3, multicast="b")),
    (Product(520, 304, 264, b="kn"), tile(128, 256, 2, multicast="a")),
    (Product(200, 264, 520), tile(64, 128, 3, split=2)),
    (Product(200, 264, 720, bias=True), tile(128, 128, 3, split=4)),
    (Product(260, 200, 136, residual=True), tile(64, 64, 3, multicast="both", consumers=1)),
    (Product(130, 100, 520), tile(64, 64, 6, consumers=1)),  # several groups of wgmmas ahead
    (Product(133, 137, 72, residual=True, bias=True), tile(128, 104, 3)),  # rows that begin between two words
    (Product(70, 75, 72, result="f32", batch=(2,)), tile(64, 40, 3, consumers=1)),
    (Product(136, 200, 136, a="km", b="kn"), tile(128, 128, 3, multicast="both")),
    (Product(260, 100, 392, bias=True), tile(64, 40, 3, multicast="turns", consumers=1)),  # three tiles are outside
    (
        Product(70, 192, 136, bias=True, result="f32"),
        tile(64, 64, 3, multicast="a", consumers=1),
    ),  # the last tile is outside
    (Product(140, 100, 520), tile(64, 112, 3, multicast="b", split=2, consumers=1)),
    (Product(500, 304, 264, bias=True), tile(128, 128, 4, pingpong=True)),
    (Product(500, 304, 264, "f16", "f32"), tile(64, 256, 3, multicast="b", pingpong=True)),
    (Product(300, 305, 200, bias=True), tile(128, 104, 3)),
    (Product(130, 304, 264, residual=True), tile(64, 112, 3)),
    (Product(133, 137, 75, residual=True), tile(128, 128, 3)),  # neither factor can be read where it lies
    (Product(133, 137, 75, b="kn", batch=(3,)), tile(64, 128, 3)),
    (Product(130, 264, 160, a="km", batch=(2, 2), shared=True), tile(64, 128, 3)),
    (Product(130, 144, 160, "f8E4M3FN"), tile(64, 128, 3)),
    (Product(130, 144, 100, "f8E4M3FN", b="kn"), tile(64, 128, 3)),  # wgmma reads fp8 along K only
    (Product(130, 144, 160, "i8", "i32"), tile(64, 128, 3)),
    (Product(130, 145, 101, "i8", "i32", a="km"), tile(64, 128, 3)),
]


@pytest.mark.portable
@pytest.mark.parametrize(("product", "parameters"), TENSOR_CORE_CASES, ids=str)
def test_products_on_tensor_cores(product: Product, parameters: Parameters) -> None:
    assert answer(product, WGMMA, parameters, FOUR) <= TOLERANCE[product.result]


@pytest.mark.portable
@pytest.mark.parametrize(
    ("product", "parameters"),
    [
        (Product(9, 300, 520, bias=True, activation="gelu"), tile(64, 16, 4, split=2, consumers=1)),
        (Product(60, 300, 520, residual=True), tile(128, 64, 4, split=4)),
        (Product(8, 130, 256, b="kn"), tile(64, 8, 4, split=2, consumers=1)),  # one piece: the second block owns nothing
        (Product(300, 13, 520, residual=True), tile(64, 16, 4, consumers=1)),
    ],
    ids=str,
)
def test_few_rows_or_columns_on_tensor_cores(product: Product, parameters: Parameters) -> None:
    assert answer(product, SKINNY, {"kind": "wgmma", **parameters}, FOUR) < TOLERANCE[product.result]


@pytest.mark.portable
@pytest.mark.parametrize(
    ("product", "parameters"),
    [
        (Product(130, 144, 101, batch=(3,)), tile(64, 128, 3)),
        (Product(130, 144, 101, a="km", b="kn", batch=(3,)), tile(64, 128, 3)),
        (Product(300, 304, 100, b="kn", bias=True, activation="gelu"), tile(128, 256, 2)),
        (Product(500, 304, 68, residual=True), tile(128, 128, 4, pingpong=True)),
        (Product(200, 264, 260), tile(64, 128, 3, split=2)),
        (Product(520, 304, 72), tile(128, 256, 2, multicast="a")),
        (Product(133, 140, 72, b="kn"), tile(64, 128, 3, consumers=1)),  # factors change sides
        (Product(132, 140, 101, a="km", b="kn", residual=True), tile(128, 128, 3)),  # one of them is copied
        (Product(260, 140, 68, a="km"), tile(256, 64, 3)),
        (Product(132, 140, 100, a="km"), tile(64, 64, 4, split=2, consumers=1)),
    ],
    ids=str,
)
def test_tf32(product: Product, parameters: Parameters) -> None:
    product = replace(product, element="f32", result="f32", tf32=True)
    assert answer(product, WGMMA, parameters, FOUR) < TF32_TOLERANCE


@pytest.mark.portable
def test_tf32_with_few_rows() -> None:
    product = Product(9, 300, 260, "f32", "f32", bias=True, tf32=True)
    assert answer(product, SKINNY, {"kind": "wgmma", **tile(64, 16, 4, split=2, consumers=1)}, FOUR) < TF32_TOLERANCE
