"""Matrix products with mma.sync and by FMA: who takes what, what the assembler makes of them, answers in the emulator."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
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
from mlirstack.schedules.cuda.device import DEVICES, Device
from mlirstack.schedules.cuda.emitter import Emitter, Parameter, Parameters
from mlirstack.schedules.cuda.instructions.tensor_core import SharedTile
from mlirstack.schedules.cuda.product.fma_choice import FmaCut
from mlirstack.schedules.cuda.product.fma_loop import FmaTile
from mlirstack.schedules.cuda.product.gemm_fma import FmaGemm
from mlirstack.schedules.cuda.product.gemm_mma import MmaGemm
from mlirstack.schedules.cuda.product.mma_choice import Cut
from mlirstack.schedules.cuda.product.mma_loop import MmaTile

AMPERE, ADA, HOPPER = DEVICES["sm_80"], DEVICES["sm_89"], DEVICES["sm_90a"]
MMA, FMA = MmaGemm(), FmaGemm()


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with new_context(), ir.Location.unknown():
        yield


def candidates(product: Product, emitter: Emitter = MMA, device: Device = AMPERE) -> list[Parameters]:
    module = ir.Module.parse(product.text())  # kept alive as long as its graph
    return emitter.candidates(graph_of(module), device)


def mma(
    rows: int, columns: int, down: int, across: int, *, k_bytes: int = 64, stages: int = 3, splits: int = 1
) -> Parameters:
    parameters: Mapping[str, Parameter] = Cut(MmaTile(rows, columns, k_bytes, down, across, stages), splits).parameters()
    return parameters


def fma(rows: int, columns: int, down: int, across: int, *, k: int = 8, stages: int = 4, splits: int = 1) -> Parameters:
    parameters: Mapping[str, Parameter] = FmaCut(FmaTile(rows, columns, down, across, k, stages), splits).parameters()
    return parameters


# ---------------------------------------------------------------------------------------------------------------- choice


@pytest.mark.portable
@pytest.mark.parametrize(
    ("product", "device", "taken"),
    [
        (Product(64, 64, 64, "f16", "f16"), AMPERE, True),
        (Product(64, 64, 64, "f32", "f32"), AMPERE, False),
        (Product(64, 64, 64, "f32", "f32", tf32=True), AMPERE, True),
        (Product(64, 64, 64, "i8", "i32"), AMPERE, True),
        (Product(64, 64, 64, "i8", "i32", wide=True), AMPERE, True),  # the low half of a sum needs no wider sums
        (Product(64, 64, 64, "f8E4M3FN", "bf16"), AMPERE, False),
        (Product(64, 64, 64, "f8E4M3FN", "bf16"), ADA, True),
        (Product(1, 1, 1), AMPERE, True),
    ],
    ids=str,
)
def test_what_tensor_cores_take(product: Product, device: Device, taken: bool) -> None:
    assert bool(candidates(product, MMA, device)) == taken


@pytest.mark.portable
@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "i8"])
def test_fma_takes_what_is_left(element: str) -> None:
    assert candidates(Product(64, 64, 64, element, "i32" if element == "i8" else "f32"), FMA)


@pytest.mark.portable
@pytest.mark.parametrize("emitter", [MMA, FMA], ids=["mma", "fma"])
def test_candidates_differ_and_fit(emitter: Emitter) -> None:
    found = candidates(Product(2048, 2048, 2048, "f32", "f32", tf32=True), emitter)
    assert len({tuple(sorted(c.items())) for c in found}) == len(found) == 8
    assert len({(c["rows"], c["columns"]) for c in found}) > 2


@pytest.mark.portable
@pytest.mark.parametrize("emitter", [MMA, FMA], ids=["mma", "fma"])
def test_few_tiles_of_a_long_k_are_split(emitter: Emitter) -> None:
    assert int(candidates(Product(64, 64, 8192, "f32", "f32", tf32=True), emitter)[0]["splits"]) > 1
    assert candidates(Product(8192, 8192, 8192, "f32", "f32", tf32=True), emitter)[0]["splits"] == 1


# ----------------------------------------------------------------------------------------------------------------- banks


def banks(offset: int, size: int) -> set[int]:
    return {(offset + byte) // 4 % 32 for byte in range(0, size, 4)}


@pytest.mark.portable
@pytest.mark.parametrize("row_bytes", [64, 128, 256])
def test_ldmatrix_reads_eight_rows_from_different_banks(row_bytes: int) -> None:
    tile: Any = SharedTile(8, row_bytes)  # on Python's numbers, the same arithmetic
    for chunk in range(row_bytes // 16):
        found = [banks(tile.offset(row, chunk), 16) for row in range(8)]
        assert len(set.union(*found)) == 32


@pytest.mark.portable
def test_words_of_a_transposed_tile_come_from_different_banks() -> None:
    tile: Any = SharedTile(4, 256, words=True)
    found = [tile.offset(k, row // 4) + row % 4 * 4 for k in range(4) for row in range(8)]
    assert len({offset // 4 % 32 for offset in found}) == 32


@pytest.mark.portable
def test_copies_that_transpose_for_fma_write_different_banks() -> None:
    pitch = FmaTile(128, 128, 8, 8, 8, 4).pitch(128)
    assert len({(k * pitch + row * 4) // 4 % 32 for k in range(8) for row in range(4)}) == 32


# --------------------------------------------------------------------------------------------------------------- emulator


def answer(product: Product, emitter: Emitter, parameters: Parameters | None = None, device: Device = AMPERE) -> float:
    """Relative error of the emulated kernels' answer."""
    module = emitted(product, emitter, device, parameters)
    arrays = product.inputs()
    (got,) = run_plan(module, arrays)
    return product.error(got, arrays)


LAYOUTS = [("mk", "nk"), ("mk", "kn"), ("km", "nk"), ("km", "kn")]


@pytest.mark.portable
@pytest.mark.parametrize(("a", "b"), LAYOUTS, ids=["nt", "nn", "tt", "tn"])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        (72, 136, 200),  # 16-byte copies
        (68, 132, 100),  # 8-byte copies
        (70, 66, 98),  # 4-byte copies
        (69, 67, 97),  # element by element
    ],
)
def test_mma_in_every_layout_and_alignment(m: int, n: int, k: int, a: str, b: str) -> None:
    assert answer(Product(m, n, k, "f16", "f16", a, b), MMA, mma(64, 64, 2, 2)) < TOLERANCE["f16"]


@pytest.mark.portable
@pytest.mark.parametrize(("a", "b"), LAYOUTS, ids=["nt", "nn", "tt", "tn"])
@pytest.mark.parametrize("element", ["tf32", "i8", "f8E4M3FN"])
def test_other_elements_of_tensor_cores(element: str, a: str, b: str) -> None:
    kind, result = {"tf32": ("f32", "f32"), "i8": ("i8", "i32"), "f8E4M3FN": ("f8E4M3FN", "f16")}[element]
    tolerance = {"f32": TF32_TOLERANCE, "i32": 0.0, "f16": 1e-3}[result]
    product = Product(41, 72, 96, kind, result, a, b, tf32=element == "tf32")
    assert answer(product, MMA, mma(64, 64, 2, 2), ADA) <= tolerance


@pytest.mark.portable
@pytest.mark.parametrize(
    ("product", "parameters"),
    [
        (Product(130, 270, 100), mma(128, 256, 2, 4, stages=4)),
        (Product(260, 130, 136, b="kn"), mma(256, 128, 4, 2, k_bytes=128)),
        (Product(130, 132, 200, bias=True, activation="gelu"), mma(128, 128, 2, 2, k_bytes=128)),
        (Product(33, 40, 64, bias=True, residual=True), mma(32, 64, 1, 4, stages=2)),
        (Product(17, 66, 1000, bias=True, activation="silu"), mma(16, 64, 1, 4, k_bytes=128, splits=4)),
        (Product(64, 64, 512, "f32", "f32", tf32=True), mma(64, 64, 2, 2, splits=3)),
        (Product(40, 48, 64, batch=(2, 3), bias=True), mma(64, 64, 2, 2)),
        (Product(40, 48, 64, batch=(3,), shared=True), mma(32, 32, 2, 2)),
        (Product(200, 48, 32, batch=(2,)), mma(64, 32, 4, 1, splits=1, stages=4)),
        (Product(70, 40, 96, "i8", "i32", wide=True), mma(64, 32, 4, 1)),
    ],
    ids=str,
)
def test_mma_tiles_splits_batches_and_epilogues(product: Product, parameters: Parameters) -> None:
    tolerance = TF32_TOLERANCE if product.tf32 else TOLERANCE[product.result]
    assert answer(product, MMA, parameters, AMPERE) <= tolerance


@pytest.mark.portable
@pytest.mark.parametrize("size", [1, 2, 15, 17])
@pytest.mark.parametrize("emitter", [MMA, FMA], ids=["mma", "fma"])
def test_every_size_is_taken(emitter: Emitter, size: int) -> None:
    element = "f16" if emitter is MMA else "f32"
    for product in (Product(size, 3, 5, element, element), Product(3, size, 5, element, element)):
        assert answer(product, emitter) < TOLERANCE[element]
    assert answer(Product(5, 4, size, element, element), emitter) < TOLERANCE[element]


@pytest.mark.portable
@pytest.mark.parametrize(("a", "b"), LAYOUTS, ids=["nt", "nn", "tt", "tn"])
@pytest.mark.parametrize(("m", "n", "k"), [(72, 136, 40), (71, 67, 29)])
def test_fma_in_every_layout(m: int, n: int, k: int, a: str, b: str) -> None:
    assert answer(Product(m, n, k, "f32", "f32", a, b), FMA, fma(64, 64, 8, 4)) < TOLERANCE["f32"]


@pytest.mark.portable
@pytest.mark.parametrize(
    ("product", "parameters"),
    [
        (Product(260, 132, 24, "f32", "f32", bias=True), fma(256, 128, 16, 8)),
        (Product(130, 200, 50, "f32", "f32", residual=True), fma(128, 128, 8, 8, k=16, stages=3)),
        (Product(33, 65, 300, "f32", "f32", bias=True, activation="relu"), fma(32, 64, 4, 4, splits=4)),
        (Product(33, 65, 40, "f32", "f32", batch=(3,)), fma(32, 32, 4, 4)),
        (Product(30, 36, 77, "i8", "i32", b="kn"), fma(32, 32, 4, 4)),
        (Product(30, 36, 77, "bf16", "f32"), fma(32, 32, 4, 4)),
    ],
    ids=str,
)
def test_fma_tiles_splits_batches_and_conversions(product: Product, parameters: Parameters) -> None:
    assert answer(product, FMA, parameters) <= TOLERANCE[product.result]


@pytest.mark.portable
@pytest.mark.parametrize("layout", [("mk", "nk"), ("km", "kn")], ids=["nt", "tn"])
@pytest.mark.parametrize(("emitter", "element"), [(MMA, "f16"), (FMA, "f32")], ids=["mma", "fma"])
@pytest.mark.parametrize(("m", "n", "k"), [(40, 72, 264), (33, 35, 25)])
def test_every_candidate_is_right(emitter: Emitter, element: str, m: int, n: int, k: int, layout: tuple[str, str]) -> None:
    product = Product(m, n, k, element, element, *layout)
    for parameters in candidates(product, emitter):
        assert answer(product, emitter, parameters) < TOLERANCE[element], parameters


@pytest.mark.portable
def test_split_sums_are_the_same_every_time() -> None:
    product = Product(32, 64, 2048, "f32", "f32")
    arrays = product.inputs()
    answers = [run_plan(emitted(product, FMA, AMPERE, fma(32, 64, 4, 4, splits=8)), arrays)[0] for _ in range(2)]
    assert np.array_equal(*answers)


# -------------------------------------------------------------------------------------------------------------- assembler


def assembled(module: Any, arch: str) -> tuple[dict[str, Any], str]:
    """Resources of each kernel and the disassembly of all."""
    for function in list(functions(module)):
        function.operation.erase()  # what is left are the kernels, which need no launch plan
    run_steps(NVVM_STEPS, module)
    code, resources = assemble(CompilePtx(arch).translate(TranslateKernels().translate(module)).body, arch)
    return resources, sass_text(code)


def main_loop(text: str, instruction: str) -> Counter[str]:
    """How often each instruction stands in the first loop that has ``instruction`` in it."""
    labels: dict[str, int] = {}
    found: list[str] = []
    for line in text.splitlines():
        if label := re.match(r"\s*(\.L_x_\d+):", line):
            labels[label[1]] = len(found)
        elif code := re.search(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(\S+)(.*);", line):
            found.append(code[1].split(".")[0])
            target = re.search(r"\.L_x_\d+", code[2]) if found[-1] == "BRA" else None
            start = labels.get(target[0]) if target else None
            if start is not None and instruction in found[start:]:
                return Counter(found[start:])
    raise AssertionError(f"no loop with {instruction}")


@pytest.mark.target
@pytest.mark.parametrize(
    ("product", "parameters", "arch", "instruction", "share"),
    [
        (Product(4096, 4096, 4096), mma(128, 256, 2, 4, k_bytes=128), "sm_80", "HMMA", 0.55),
        (Product(4096, 4096, 4096, "f16", "f16", b="kn"), mma(128, 128, 2, 2, k_bytes=128), "sm_86", "HMMA", 0.5),
        (Product(4096, 4096, 4096, "i8", "i32"), mma(128, 128, 2, 2, k_bytes=128), "sm_89", "IMMA", 0.5),
        (Product(4096, 4096, 4096, "f32", "f32", tf32=True), mma(128, 128, 2, 2, k_bytes=128), "sm_90", "HMMA", 0.35),
        (Product(4096, 4096, 4096, "f32", "f32"), fma(256, 128, 16, 8), "sm_90", "FFMA", 0.88),
        (Product(4096, 4096, 4096, "f32", "f32", b="kn"), fma(128, 128, 8, 8), "sm_80", "FFMA", 0.85),
    ],
    ids=["bf16", "f16", "i8", "tf32", "f32 16x8", "f32 8x8"],
)
def test_main_loops_multiply(product: Product, parameters: Parameters, arch: str, instruction: str, share: float) -> None:
    emitter = FMA if instruction == "FFMA" else MMA
    resources, text = assembled(emitted(product, emitter, DEVICES[arch], parameters), arch)
    assert all(found.spill_bytes == found.stack_bytes == 0 for found in resources.values())
    loop = main_loop(text, instruction)
    assert loop["F2FP"] == (loop[instruction] if product.tf32 and emitter is MMA else 0)  # factors are rounded, not cut off
    assert loop[instruction] / loop.total() > share
    assert loop["LDGSTS"] > 0
    assert loop["MOV"] <= 4  # operands come in the registers in which they are needed
    assert "LDGSTS.E.BYPASS" in text or instruction == "FFMA"


@pytest.mark.target
def test_fp8_on_ada_has_instructions_of_its_own() -> None:
    product = Product(512, 512, 512, "f8E4M3FN", "bf16")
    resources, text = assembled(emitted(product, MMA, ADA, mma(128, 128, 2, 2)), "sm_89")
    assert all(found.spill_bytes == found.stack_bytes == 0 for found in resources.values())
    assert "QMMA.16832.F32.E4M3.E4M3" in text
