"""The target "cuda" without a GPU: architectures, what is loaded where, artifacts, and errors with the way out."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from cuda_fake import SCALE, FakeDriver, signature, tensor
from torch import nn

from mlirstack.bundle.store import BundleInfo, read_bundle, write_bundle
from mlirstack.errors import BundleError, TargetUnavailableError, UsageError
from mlirstack.frontend.program import ResultSpec
from mlirstack.lowering import LowerOptions, build_program, program_of
from mlirstack.passes.cuda.fatbin import MAGIC, read_fatbin
from mlirstack.passes.cuda.plan import Argument, Buffer, Input, Launch, LaunchPlan, PlannedFunction, ResultRef
from mlirstack.passes.cuda.toolkit import find_program
from mlirstack.schedules.cuda.device import device_of
from mlirstack.targets.base import Artifact
from mlirstack.targets.callable import CompiledFunction
from mlirstack.targets.cuda.arch import Arch, Architectures
from mlirstack.targets.cuda.driver import KernelCall
from mlirstack.targets.cuda.target import CUBIN_FILE, FATBIN_FILE, PLAN_FILE, PTX_FILE, CudaTarget
from mlirstack.targets.registry import TargetOptions

CUBIN, PTX = b"\x7fELF machine code", b".version 8.3\n.target sm_90a\n"
FATBIN = MAGIC.to_bytes(4, "little") + b" machine code for several"
DOUBLE = PlannedFunction(
    "main",
    (Input("f32", (4,), "argument", 0),),
    (Buffer("input", 16), Buffer("result", 16, "f32", (4,))),
    (
        Launch(
            "scale",
            (1, 1, 1),
            (32, 1, 1),
            (Argument("pointer", 0), Argument("pointer", 1), Argument("i64", value=4), Argument("f32", value=2.0)),
        ),
    ),
    (ResultRef(1),),
)
SIGNATURE = signature((tensor("x", [4], 0),), (ResultSpec((4,), "float32"),))


def artifact(arch: str = "sm_90a", cuda: tuple[int, int] = (13, 0), **files: bytes) -> Artifact:
    plan = LaunchPlan(arch, (DOUBLE,), ())
    contents = {CUBIN_FILE: CUBIN, PTX_FILE: PTX, PLAN_FILE: plan.to_json().encode()} | files
    return Artifact("cuda", contents, {"arch": arch, "cuda": list(cuda)})


def loaded_image(driver: FakeDriver, given: Artifact, **options: Any) -> Any:
    """What is handed to the driver."""
    CudaTarget(TargetOptions(), driver=driver, **options).load(given, SIGNATURE, {})
    return driver.named("load")[0][1]


@pytest.mark.parametrize("text", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100f", "sm_120a"])
def test_architectures_are_read_and_written(text: str) -> None:
    assert str(Arch.parse(text)) == text


@pytest.mark.parametrize("text", ["sm_70", "90a", "sm_90b", "sm_9", "hopper", ""])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no GPU architecture"):
        Arch.parse(text)


@pytest.mark.parametrize(
    ("arch", "capability", "image"),
    [
        ("sm_80", (8, 0), "cubin"),
        ("sm_80", (8, 6), "cubin"),
        ("sm_86", (8, 0), None),
        ("sm_80", (9, 0), "ptx"),
        ("sm_90", (8, 9), None),
        ("sm_90a", (9, 0), "cubin"),
        ("sm_90a", (10, 0), None),
        ("sm_100a", (10, 3), None),
        ("sm_100f", (10, 3), "cubin"),
        ("sm_100f", (12, 0), None),
    ],
)
def test_machine_code_is_taken_where_it_runs_else_ptx(arch: str, capability: tuple[int, int], image: str | None) -> None:
    assert Arch.parse(arch).image_for(capability) == image
    assert Arch.parse(arch).image_for(capability, jit=True) == ("ptx" if image else None)


@pytest.mark.parametrize(
    ("capability", "image"), [((8, 0), "cubin"), ((8, 9), "cubin"), ((9, 0), "cubin"), ((7, 5), None), ((12, 0), "ptx")]
)
def test_code_for_several_runs_on_each_and_on_later_ones(capability: tuple[int, int], image: str | None) -> None:
    several = Architectures.parse("sm_80+sm_89+sm_90")
    assert str(several) == "sm_80+sm_89+sm_90" and several.are_several and str(several.first) == "sm_80"
    assert several.image_for(capability) == image
    assert several.image_for(capability, jit=True) == ("ptx" if image else None)


@pytest.mark.parametrize("text", ["sm_89+sm_80", "sm_80+sm_80", "sm_80+sm_90a", "sm_90a+sm_100"])
def test_architectures_that_cannot_share_kernels_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="cannot share its kernels with"):
        CudaTarget(TargetOptions(text), driver=FakeDriver({}))


def test_kernels_for_several_fit_the_narrowest() -> None:
    both = device_of("sm_80+sm_89")
    assert (both.arch, both.multiprocessors) == ("sm_80", device_of("sm_80").multiprocessors)
    assert both.shared_per_block == device_of("sm_89").shared_per_block < device_of("sm_80").shared_per_block
    with pytest.raises(UsageError, match="unknown GPU architecture 'sm_77'"):
        device_of("sm_80+sm_77")


def test_of_a_fat_binary_the_driver_takes_what_fits() -> None:
    fat = artifact("sm_80", **{FATBIN_FILE: FATBIN})
    del fat.files[CUBIN_FILE]
    fat.metadata["arch"] = "sm_80+sm_89"
    for capability in ((8, 9), (9, 0)):  # there is machine code; there is only PTX
        assert loaded_image(FakeDriver({"scale": SCALE}, capability=capability), fat) == FATBIN
    assert loaded_image(FakeDriver({"scale": SCALE}), fat, jit=True) == PTX
    assert CudaTarget().requirements(fat).arch == "sm_80"
    with pytest.raises(TargetUnavailableError, match=r"kernels for sm_80\+sm_89 do not run on .*7\.5"):
        loaded_image(FakeDriver({"scale": SCALE}, capability=(7, 5)), fat)


def test_the_cubin_is_loaded_and_ptx_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    drivers = [FakeDriver({"scale": SCALE}) for _ in range(4)]
    assert loaded_image(drivers[0], artifact()) == CUBIN
    assert loaded_image(drivers[1], artifact(), jit=True) == PTX
    monkeypatch.setenv("MLIRSTACK_CUDA_JIT", "1")
    assert loaded_image(drivers[2], artifact()) == PTX
    monkeypatch.setenv("MLIRSTACK_CUDA_JIT", "0")
    assert loaded_image(drivers[3], artifact("sm_80")) == PTX


def test_a_device_that_cannot_run_the_kernels_is_named() -> None:
    driver = FakeDriver({"scale": SCALE}, capability=(8, 0))
    with pytest.raises(TargetUnavailableError, match=r"sm_90a do not run on .*capability is 8\.0\nhint: .*cuda:sm_80"):
        loaded_image(driver, artifact())
    assert "sm_90a" in (CudaTarget(TargetOptions("sm_90a"), driver=driver).available() or "")
    assert CudaTarget(TargetOptions("sm_80"), driver=driver).available() is None


def test_a_driver_older_than_the_kernels_is_named() -> None:
    old = FakeDriver({"scale": SCALE}, version=(12, 1))
    with pytest.raises(TargetUnavailableError, match=r"assembled by CUDA 13\.0, this driver serves CUDA 12\.1"):
        loaded_image(old, artifact())
    with pytest.raises(TargetUnavailableError, match=r"PTX 8\.3, the driver of CUDA 12\.1 reads PTX up to 8\.1"):
        loaded_image(old, artifact(), jit=True)


def test_incomplete_artifacts_are_refused() -> None:
    driver = FakeDriver({"scale": SCALE})
    with pytest.raises(BundleError, match=r"holds no kernels\.ptx, plan\.json"):
        loaded_image(driver, Artifact("cuda", {CUBIN_FILE: CUBIN}))
    for text in (b"{}", b"nonsense", b'{"format": 99}'):
        with pytest.raises(BundleError, match=r"plan\.json cannot be read"):
            loaded_image(driver, artifact(**{PLAN_FILE: text}))


@pytest.mark.target
def test_what_is_built_is_loaded_and_traced(tmp_path: Path) -> None:
    if find_program("ptxas") is None or find_program("nvdisasm") is None:
        pytest.skip("ptxas and nvdisasm are not installed")
    program = program_of(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), (torch.ones(2, 8),), name="net")
    _, built, _ = build_program(program, LowerOptions("cuda:sm_90a", dump=tmp_path))
    assert set(built.files) == {CUBIN_FILE, PTX_FILE, PLAN_FILE}
    plan = LaunchPlan.from_json(built.files[PLAN_FILE].decode())
    main = plan.function("main")
    assert main is not None and built.metadata["arch"] == plan.arch == "sm_90a"
    memory = json.loads((tmp_path / "trace.json").read_text())["memory"]
    assert memory["main"] == {"arena": main.arena_bytes, "unshared": main.unshared_bytes} and main.arena_bytes

    class Idle(FakeDriver):
        """Does not compute: what is checked is that kernels are found, and what comes back."""

        def launch(self, call: KernelCall, stream: int) -> None:
            self.calls.append(("launch", call.function))

    driver = Idle({})
    executable = CudaTarget(driver=driver).load(built, program.signature, program.parameters)
    driver.calls.clear()
    executable.use_graph = False  # type: ignore[attr-defined]
    (y,) = executable.run([torch.ones(2, 8)])
    assert y.shape == (2, 4) and y.dtype == torch.float32
    launches = [step.kernel for step in main.steps if isinstance(step, Launch)]
    assert [call[1] for call in driver.named("launch")] == launches


@pytest.mark.target
def test_one_artifact_holds_machine_code_of_several_and_ptx() -> None:
    if find_program("ptxas") is None or find_program("fatbinary") is None or find_program("nvdisasm") is None:
        pytest.skip("NVIDIA's programs are not installed")
    program = program_of(nn.Linear(64, 64).bfloat16(), (torch.ones(64, 64, dtype=torch.bfloat16),), name="net")
    _, built, _ = build_program(program, LowerOptions("cuda:sm_80+sm_89+sm_90"))
    assert set(built.files) == {FATBIN_FILE, PTX_FILE, PLAN_FILE} and built.metadata["arch"] == "sm_80+sm_89+sm_90"
    images = read_fatbin(built.files[FATBIN_FILE])
    assert [(image.is_cubin, image.arch) for image in images] == [(True, 80), (True, 89), (True, 90), (False, 80)]
    for capability, listed in (((8, 9), "sm_89"), ((8, 6), "sm_80"), ((9, 0), "sm_90"), ((10, 0), None)):
        executable = CudaTarget(driver=FakeDriver({}, capability=capability)).load(
            built, program.signature, program.parameters
        )
        if listed is None:  # compiled by the driver: there is no machine code to show
            with pytest.raises(KeyError):
                executable.source("sass")
        else:
            assert f".target\t{listed}" in executable.source("sass")


@pytest.mark.target
def test_the_kernels_of_the_device_tests_are_accepted_by_ptxas(tmp_path: Path) -> None:
    from device.cuda_programs import KERNELS, TILE_KERNEL, assembled

    ptxas = find_program("ptxas")
    if ptxas is None:
        pytest.skip("ptxas is not installed")
    for text, arch in ((KERNELS, "sm_80"), (KERNELS, "sm_90"), (TILE_KERNEL, "sm_90")):
        assert assembled(ptxas, text, arch, tmp_path).startswith(b"\x7fELF")


def test_the_default_architecture_is_that_of_the_device() -> None:
    assert CudaTarget(driver=FakeDriver({}, capability=(8, 9))).arch == "sm_89"
    assert CudaTarget(driver=FakeDriver({}, capability=(9, 0))).arch == "sm_90a"
    assert CudaTarget(TargetOptions("sm_80"), driver=FakeDriver({})).arch == "sm_80"


def test_sources_are_at_hand() -> None:
    target = CudaTarget(driver=FakeDriver({"scale": SCALE}))
    executable = target.load(artifact(), SIGNATURE, {})
    assert executable.source("ptx") == PTX.decode()
    assert LaunchPlan.from_json(executable.source("plan")) == LaunchPlan("sm_90a", (DOUBLE,), ())
    with pytest.raises(KeyError):
        executable.source("linalg")


def test_a_bundle_runs_without_compilers(tmp_path: Path) -> None:
    """Reading, loading and calling imports neither MLIR nor LLVM; without a driver there is one line that says so."""
    write_bundle(tmp_path / "net", artifact(), SIGNATURE, {}, BundleInfo("net", "tosa", "TOSA first", {}))
    program = f"""
        import sys
        class Refuse:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in ("torch_mlir", "llvmlite", "iree", "capstone", "cuda"):
                    raise ModuleNotFoundError(name, name=name)
        sys.meta_path.insert(0, Refuse())
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import torch
        from pathlib import Path
        from cuda_fake import SCALE, FakeDriver
        from mlirstack.bundle.store import read_bundle
        from mlirstack.targets.callable import CompiledFunction
        from mlirstack.targets.cuda.target import CudaTarget
        from mlirstack.targets.registry import TargetOptions
        bundle = read_bundle(Path({str(tmp_path / "net")!r}))
        target = CudaTarget(TargetOptions(), driver=FakeDriver({{"scale": SCALE}}))
        executable = target.load(bundle.artifact, bundle.signature, bundle.parameters)
        print(CompiledFunction(executable, bundle.signature, bundle.parameters)(torch.ones(4))[0].tolist())
        print(CudaTarget(TargetOptions()).available())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "[2.0, 2.0, 2.0, 2.0]",
        "cuda-bindings is not installed (pip install 'mlirstack[cuda]')",
    ]


def test_a_bundle_comes_back_whole(tmp_path: Path) -> None:
    write_bundle(tmp_path / "net", artifact(), SIGNATURE, {}, BundleInfo("net", "tosa", "TOSA first", {}))
    bundle = read_bundle(tmp_path / "net")
    assert bundle.artifact == artifact()
    executable = CudaTarget(driver=FakeDriver({"scale": SCALE})).load(bundle.artifact, bundle.signature, bundle.parameters)
    assert CompiledFunction(executable, bundle.signature, {})(torch.ones(4))[0].tolist() == [2] * 4
