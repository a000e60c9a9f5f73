"""What a GPU's driver loads: machine code, PTX that it compiles, and fat binaries that hold both, each timed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from cuda_programs import DOUBLE, KERNELS, assembled, executable, numbers

from mlirstack.errors import DeviceError
from mlirstack.passes.cuda.fatbin import make_fatbin
from mlirstack.passes.cuda.toolkit import find_program
from mlirstack.targets.cuda.driver import Driver

OLDEST = "sm_80"


@pytest.fixture
def ptxas() -> Path:
    """NVIDIA's assembler, where it and fatbinary are installed."""
    found = find_program("ptxas")
    if found is None or find_program("fatbinary") is None:
        pytest.skip("ptxas and fatbinary are not installed")
    return found


def test_machine_code_and_text_are_loaded_and_timed(
    driver: Driver, ptxas: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = own_arch(driver)
    cubin = assembled(ptxas, KERNELS, own, tmp_path)
    fresh = never_compiled()
    x, seconds = numbers(), {}
    images = {"cubin": cubin, "fat binary": make_fatbin({own: cubin}, {OLDEST: KERNELS})}
    images |= dict.fromkeys(("PTX, first time", "PTX, cached"), fresh.encode())
    for name, code in images.items():
        started = time.perf_counter()
        loaded = executable(driver, DOUBLE, code=code)
        (y,) = loaded.run([x])
        torch.cuda.synchronize()
        seconds[name] = time.perf_counter() - started
        assert torch.equal(y, 2 * x)
    with capsys.disabled():
        print("\nload and first call: " + "; ".join(f"{name} {value * 1e3:.2f} ms" for name, value in seconds.items()))


def test_of_a_fat_binary_without_code_for_this_device_the_driver_compiles_the_ptx(
    driver: Driver, ptxas: Path, tmp_path: Path
) -> None:
    if own_arch(driver).startswith("sm_8"):
        pytest.skip(f"machine code for {OLDEST} runs here")
    text = never_compiled()
    foreign = {OLDEST: assembled(ptxas, text, OLDEST, tmp_path)}
    x = numbers()
    (y,) = executable(driver, DOUBLE, code=make_fatbin(foreign, {OLDEST: text})).run([x])
    assert torch.equal(y, 2 * x)
    with pytest.raises(DeviceError, match="NO_BINARY_FOR_GPU"):  # so it was the PTX
        executable(driver, DOUBLE, code=make_fatbin(foreign, {}))


def own_arch(driver: Driver) -> str:
    """The architecture of the device."""
    major, minor = driver.capability
    return f"sm_{major}{minor}"


def never_compiled() -> str:
    """The kernels under a name that the driver's cache cannot have."""
    return KERNELS.replace("again", f"again{time.time_ns()}")
