"""What is read out of machine code of a GPU: registers, occupancy, roofline times, listings, fat binaries."""

from __future__ import annotations

import dataclasses
import re

import pytest
from cuda_kernels import (
    PLAN,
    compiled,
    kernel_module,
)

from mlirstack.errors import BundleError
from mlirstack.passes.cuda.cubin import CubinCode, assemble, parse_resources
from mlirstack.passes.cuda.device_code import PTX_COMMENT, DeviceCode
from mlirstack.passes.cuda.fatbin import is_fatbin, make_fatbin, read_fatbin
from mlirstack.passes.cuda.plan import KernelInfo
from mlirstack.passes.cuda.planned import KernelTable, TabulateKernels
from mlirstack.passes.cuda.ptx import ptx_of
from mlirstack.passes.cuda.resources import occupancy, roofline, tensor_speed
from mlirstack.passes.cuda.sass import SassCode, kernel_listings, sass_text
from mlirstack.schedules.cuda.device import device_of

pytestmark = pytest.mark.target


def test_what_ptxas_says_is_read_per_kernel() -> None:
    output = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'one' for 'sm_90a'
ptxas info    : Function properties for one
    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 16 bytes cumulative stack size, 256 bytes smem
ptxas info    : Compiling entry function 'two' for 'sm_90a'
ptxas info    : Function properties for two
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 14 registers, used 0 barriers
"""
    found = parse_resources(output)
    assert dataclasses.astuple(found["one"]) == (168, 256, 20, 16, None)
    assert dataclasses.astuple(found["two"]) == (14, 0, 0, 0, None)


def test_what_costs_speed_is_read_per_kernel() -> None:
    output = """ptxas info    : (C7514) Potential Performance Loss: wgmmas are serialized in the function 'one'
ptxas info    : Compiling entry function 'one' for 'sm_90a'
ptxas info    : Used 168 registers, used 1 barriers
"""
    assert parse_resources(output)["one"].warning == "C7514: wgmmas are serialized"


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "arch", "blocks", "limit"),
    [
        (128, 32, 0, "sm_90a", 16, "threads"),
        # 168 registers: 5376 a warp, 12 warps in 65536.
        (128, 168, 0, "sm_90a", 3, "registers"),
        (384, 168, 0, "sm_90a", 1, "registers"),
        # 100 KB and the 1 KB that the system keeps, of 228 KB.
        (128, 32, 100 * 1024, "sm_90a", 2, "shared memory"),
        (32, 16, 0, "sm_90a", 32, "blocks"),
        (128, 32, 0, "sm_89", 12, "threads"),
    ],
)
def test_occupancy(threads: int, registers: int, shared: int, arch: str, blocks: int, limit: str) -> None:
    kernel = KernelInfo("k", "s", threads, shared, registers=registers, static_shared_bytes=0)
    found = occupancy(kernel, device_of(arch))
    assert (found.blocks, found.limit) == (blocks, limit)
    assert found.share == blocks * threads / device_of(arch).threads_per_multiprocessor


def test_roofline_takes_the_unit_that_the_machine_code_uses() -> None:
    h200 = device_of("sm_90a")
    kernel = KernelInfo("k", "s", 128, 0, bytes=48 * 10**6, flops=989 * 10**9)
    assert tensor_speed("/*0000*/ HGMMA.64x256x16.F32.BF16 R24, gdesc[UR8], R24 ;") == 1.0
    assert tensor_speed("/*0000*/ QGMMA.64x256x32.F32.E4M3.E4M3 R24, gdesc[UR8], R24 ;") == 2.0
    assert tensor_speed("/*0000*/ HMMA.1688.F32.TF32 R4, R8, R2, R4 ;") == 0.5
    assert tensor_speed("/*0000*/ HFMA2.MMA R9, -RZ, RZ, 0.9, -0.002 ;\n/*0010*/ FFMA R1, R2, R3, R4 ;") is None
    on_tensor_cores = roofline(kernel, h200, 1.0)
    assert on_tensor_cores is not None and on_tensor_cores.seconds == pytest.approx(1e-3)
    assert on_tensor_cores.bound == "tensor cores"
    few = dataclasses.replace(kernel, flops=0)
    in_memory = roofline(few, h200, None)
    assert in_memory is not None and in_memory.bound == "memory" and in_memory.seconds == pytest.approx(1e-5)
    assert roofline(dataclasses.replace(few, bytes=None, flops=None), h200, None) is None


def test_the_kernel_table_reports_spills() -> None:
    spilling = dataclasses.replace(PLAN.kernels[0], registers=255, static_shared_bytes=0, spill_bytes=96, stack_bytes=48)
    plan = dataclasses.replace(PLAN, arch="sm_90a", kernels=(spilling,))
    table = TabulateKernels().translate(SassCode("", CubinCode(b"", DeviceCode("", plan, PTX_COMMENT))))
    assert isinstance(table, KernelTable)
    heading, note, _, columns, row = table.text.splitlines()
    assert "H200" in heading and note == "registers spill to memory in: copy"
    assert columns.split()[:4] == ["kernel", "schedule", "launches", "threads"]
    assert row.split()[:8] == ["copy", "general", "1", "128", "255", "8192", "96", "48"]


def test_listings_are_told_apart_by_kernel() -> None:
    text = compiled(kernel_module("f32", [("add", "%r = arith.addf %x, %y : f32")]))
    both = text + re.sub(r"\bkernel(?=\(|_param)", "other", text[text.index(".visible") :])
    listings = kernel_listings(sass_text(assemble(both, "sm_90a")[0]))
    assert set(listings) == {"kernel", "other"}
    assert all("FADD" in listing for listing in listings.values())


def test_a_fat_binary_holds_all_images() -> None:
    text = "define ptx_kernel void @k() {\n ret void\n}"
    ptx = ptx_of(text, "sm_80", "+ptx83")
    cubins = {arch: assemble(ptx, arch)[0] for arch in ("sm_80", "sm_89", "sm_90")}
    data = make_fatbin(cubins, {"sm_80": ptx})
    assert is_fatbin(data) and not is_fatbin(cubins["sm_80"])
    images = read_fatbin(data)
    assert [(image.is_cubin, image.arch) for image in images] == [(True, 80), (True, 89), (True, 90), (False, 80)]
    assert all(image.data.startswith(cubins[f"sm_{image.arch}"]) for image in images if image.is_cubin)
    no_entries = data[:16] + bytes(len(data) - 16)
    for damaged in (data[: len(data) // 2], data[:10], b"\0" * 32, no_entries):
        with pytest.raises(BundleError, match="fat binary is damaged"):
            read_fatbin(damaged)
