"""What targets of IREE leave behind for each architecture, what they ask of a machine, how parameters lie in a file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from mlirstack.bindings import new_context
from mlirstack.bundle.golden import Drawn, draw, sample_positions
from mlirstack.bundle.manifest import ArtifactEntry, Manifest
from mlirstack.bundle.parameters import map_parameters
from mlirstack.bundle.select import choose
from mlirstack.errors import PipelineError, TargetUnavailableError, UsageError
from mlirstack.frontend.parameters import save_parameters
from mlirstack.frontend.program import Signature
from mlirstack.ir.text import parse_module
from mlirstack.passes.iree.phase import IreePhase
from mlirstack.passes.iree.targets import BACKENDS, CPU, CUDA, ROCM, VULKAN, device_attribute
from mlirstack.targets import requirements
from mlirstack.targets.base import Artifact
from mlirstack.targets.iree.bytecode import bytecode_version
from mlirstack.targets.registry import create_target
from mlirstack.targets.requirements import (
    CudaDevice,
    Requirements,
    _is_at_least,
    cpuinfo_features,
    features_in,
    runs_on,
    unmet,
)

DOUBLE = """
func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {
  %y = arith.addf %x, %x : tensor<64xf32>
  return %y : tensor<64xf32>
}
"""
AARCH64, RISCV = 183, 243  # e_machine of ELF


def compiled(backend: str, arch: str) -> bytes:
    """One run of the compiler, from the form that the first phase hands over to the end."""
    from mlirstack.passes.iree.compiler import CompilerRun, run_compiler

    text = DOUBLE
    targets = device_attribute(backend, arch)
    if targets is not None:
        text = f"module attributes {{hal.device.targets = {targets}}} {{{DOUBLE}}}"
    found = run_compiler(CompilerRun(None, None, IreePhase("input", backend=backend, arch=arch).flags(), 120), text)
    assert isinstance(found, bytes)
    return found


@pytest.mark.target
@pytest.mark.parametrize(
    ("backend", "arch", "content"),
    [
        (CUDA, "sm_90", b".target sm_90"),
        (VULKAN, "vp_android_baseline_2022", bytes.fromhex("03022307")),
        (ROCM, "gfx942", b"gfx942"),
        (CPU, "aarch64", AARCH64.to_bytes(2, "little")),
        (CPU, "riscv64", RISCV.to_bytes(2, "little")),
    ],
)
def test_code_is_for_the_architecture(backend: str, arch: str, content: bytes) -> None:
    vmfb = compiled(backend, arch)
    assert bytecode_version(vmfb) == (17, 0)
    if backend == CPU:
        elf = vmfb.index(b"\x7fELF")
        assert vmfb[elf + 18 : elf + 20] == content
    else:
        assert content in vmfb


def test_the_table_names_every_architecture_once() -> None:
    for backend, found in BACKENDS.items():
        assert found.default in found.known
        with pytest.raises(PipelineError, match="no architecture 'sm_1'"):
            IreePhase("vmfb", backend=backend, arch="sm_1", opt_level="O9")
    assert device_attribute(CUDA, "sm_80") is None
    for spec, message in (
        ("iree-cuda:sm_91", "nearest: sm_90"),
        ("iree-rocm:gfx9", "no architecture"),
        ("iree-cpu:sapphirerapids", "no architecture"),
        ("iree-cpu", "opt-level"),
    ):
        with pytest.raises(UsageError, match=message):
            create_target(spec, settings={"opt-levl": "O2"} if spec == "iree-cpu" else None)
    for settings in ({"opt-level": "O7"}, {"data-tiling": "yes"}, {"ukernels": "some"}):
        with pytest.raises(UsageError, match="target 'iree-cpu'"):
            create_target("iree-cpu", settings=settings).pipeline("linalg", "linalg")


def test_code_for_each_processor_says_what_it_needs() -> None:
    """Code that a machine has no instructions for ends the process."""
    needs = {}
    for arch in BACKENDS[CPU].known:
        metadata = {"bytecode": [17, 0], "compiler": "iree-base-compiler 3.13.0", "arch": arch, "features": ["avx2", "fma"]}
        needs[arch] = create_target(f"iree-cpu:{arch}").requirements(Artifact("iree-cpu", {}, metadata))
    assert needs["host"].features == ("avx2", "fma") and needs["generic"].features == needs["x86-64"].features == ()
    assert needs["x86-64-v2"].features < needs["x86-64-v3"].features < needs["x86-64-v4"].features
    assert {need.machine for need in needs.values()} == {"x86_64", "aarch64", "riscv64"}


def test_settings_reach_the_compiler() -> None:
    target = create_target("iree-cpu:generic", settings={"opt-level": "O1", "data-tiling": "false", "ukernels": "all"})
    phase = target.pipeline("linalg", "linalg").stages[-1].steps[0]
    assert phase == IreePhase("vmfb", arch="generic", opt_level="O1", data_tiling=False, ukernels="all")
    assert isinstance(phase, IreePhase)
    wanted = {"--iree-opt-level=O1", "--iree-opt-data-tiling=false", "--iree-llvmcpu-enable-ukernels=all"}
    assert wanted <= set(phase.flags())


@pytest.mark.parametrize(("arch", "wanted"), [("generic", "none"), ("x86-64-v3", "default"), ("aarch64", "default")])
def test_products_of_generic_processors_do_without_irees_inner_loops(arch: str, wanted: str) -> None:
    """They are scalar code there: ten times the time of generated code."""
    for given in ({}, {"ukernels": "default"}):
        phase = create_target(f"iree-cpu:{arch}", settings=given).pipeline("linalg", "linalg").stages[-1].steps[0]
        assert isinstance(phase, IreePhase)
        assert phase.ukernels == (given.get("ukernels") or wanted)


def test_requirements_name_what_the_kernel_names() -> None:
    assert cpuinfo_features("+avx2,-avx512f,+bmi,+sse4.2,+sse3,+unknown") == ("avx2", "bmi1", "pni", "sse4_2")
    assert features_in("processor : 0\nisa : rv64imafdcv_zicsr_zba\n") == {*"imafdcv", "zicsr", "zba"}
    assert features_in("flags\t: fpu avx2\n") == {"fpu", "avx2"} and features_in("model name : x") == set()
    assert unmet(Requirements()) == []
    (lack,) = unmet(Requirements(bytecode=(17, 2)), (17, 1))
    assert lack.kind == "versions" and "17.2" in lack.reason and "17.1" in lack.reason
    assert unmet(Requirements(bytecode=(17, 0)), (17, 1)) == []
    assert len(unmet(Requirements(bytecode=(16, 0)), (17, 1))) == 1
    asked = {">=1.2": "3.13", ">=3.14": "3.13.9", ">=3": "3.0.0rc1+cpu", ">=3.1.1": "3.1", "==3": "3"}
    fits = {wanted: _is_at_least(version, wanted) for wanted, version in asked.items()}
    assert fits == {">=1.2": True, ">=3.14": False, ">=3": True, ">=3.1.1": False, "==3": False}
    runs = {("sm_80", (9, 0)): True, ("sm_90", (8, 9)): False, ("sm_90a", (9, 0)): True, ("sm_90a", (10, 0)): False}
    runs |= {("sm_100f", (10, 3)): True, ("sm_100f", (12, 0)): False, ("gfx942", (9, 0)): False}
    assert {key: runs_on(*key) for key in runs} == runs


def test_of_several_architectures_the_one_for_this_gpu_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle for sm_80 and sm_90: a machine takes its own, a later one what runs on it, an earlier one is told why not."""
    own = {"ptx": [8, 0], "compiler": "iree-base-compiler 3.13.0", "bytecode": [17, 0]}
    metadata = {
        "iree-cuda:sm_80": own | {"arch": "sm_80"},
        "iree-cuda:sm_90": own | {"arch": "sm_90", "kernel_arch": "sm_90a"},
    }
    entries = tuple(
        ArtifactEntry(spec, "iree-cuda", {}, create_target(spec).requirements(Artifact("iree-cuda", {}, found)), found)
        for spec, found in metadata.items()
    )
    manifest = Manifest("net", {}, Signature((), (), (), "", ""), (), (), entries, {})
    chosen = {}
    for capability in ((8, 0), (8, 9), (9, 0), (10, 0)):
        device = CudaDevice("a GPU", capability, (13, 0))
        monkeypatch.setattr(requirements, "cuda_device", lambda found=device: found)
        chosen[capability] = choose(manifest).entry.spec
    sm_80, sm_90 = metadata
    assert chosen == {(8, 0): sm_80, (8, 9): sm_80, (9, 0): sm_90, (10, 0): sm_80}
    for capability, cuda, wanted, reason in (
        ((7, 5), (13, 0), None, "the kernels are for sm_80, a GPU has compute capability 7.5"),
        ((10, 0), (13, 0), sm_90, "the kernels are for sm_90a, a GPU has compute capability 10.0"),
        ((9, 0), (11, 8), None, "the kernels need a driver for CUDA 12.0, this one serves CUDA 11.8"),
    ):
        device = CudaDevice("a GPU", capability, cuda)
        monkeypatch.setattr(requirements, "cuda_device", lambda found=device: found)
        with pytest.raises(TargetUnavailableError, match=reason):
            choose(manifest, wanted)


def test_parameters_lie_where_they_can_be_used(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    parameters = {
        "odd": torch.arange(3.0),
        "whole": torch.randn(16, 16),
        "bf16": torch.randn(32).bfloat16(),
        "mask": torch.tensor([True, False]),
        "complex": torch.randn(8, dtype=torch.complex64),
        "empty": torch.empty(0, 4),
        "scalar": torch.tensor(3),
    }
    save_parameters(parameters, tmp_path / "p.safetensors")
    found, mapped = load_file(tmp_path / "p.safetensors"), map_parameters(tmp_path / "p.safetensors")
    assert set(found) == set(mapped) == set(parameters)
    for name, tensor in parameters.items():
        assert torch.equal(found[name], tensor) and torch.equal(mapped[name].tensor(), tensor)
        assert mapped[name].array().shape == tuple(tensor.shape)
    for name in ("whole", "bf16", "complex"):
        assert mapped[name].contents.ctypes.data % 64 == 0
    mapped["whole"].tensor().zero_()  # a private page
    assert torch.equal(map_parameters(tmp_path / "p.safetensors")["whole"].tensor(), parameters["whole"])
    header = (tmp_path / "p.safetensors").read_bytes()
    assert (8 + int.from_bytes(header[:8], "little")) % 64 == 0
    assert list(json.loads(header[8 : 8 + int.from_bytes(header[:8], "little")]))[-1] != "whole"


def test_drawn_inputs_are_the_same_everywhere() -> None:
    """A digest that this machine and others gave: a change of the generator would make large golden answers wrong."""
    drawn = draw(Drawn(seed=7, mean=0.5, deviation=2.0), (300, 1000), "float32")
    assert abs(float(drawn.mean()) - 0.5) < 0.02 and abs(float(drawn.std()) - 2.0) < 0.02
    digest = hashlib.sha256(drawn.tobytes()).hexdigest()
    assert digest == "622011a16f8d522dd213269e6f4210ddaac5303d2d26ff0f3505d5ae3ad8c68b"
    assert np.array_equal(draw(Drawn(7, 0.5, 2.0), (10,), "float32"), drawn.reshape(-1)[:10])


def test_samples_reach_every_row_and_column() -> None:
    positions = sample_positions(8192 * 8192)
    assert len(set(positions.tolist())) == len(positions) == 65536
    assert len(set((positions // 8192).tolist())) == 8192
    assert len(set((positions % 8192).tolist())) > 8000


def test_modules_are_parsed_with_the_description_of_a_device() -> None:
    """The attribute goes through our bindings as an opaque one: nothing in it may trip their parser."""
    from mlirstack.passes.iree.arguments import describe_device

    module = parse_module(DOUBLE, new_context())
    describe_device(module, device_attribute(CUDA, "sm_90"))
    assert 'arch = "sm_90"' in str(module.operation.attributes["hal.device.targets"])
