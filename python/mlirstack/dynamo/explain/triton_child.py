"""Inductor and Triton for a GPU that is not there: ``python -m mlirstack.dynamo.explain.triton_child``, asked over pipes.

The model is captured with tensors that have a device and no data; torch's and Triton's ideas of the device are replaced by
constants of an H100.  Never import this into a process that does anything else.
"""

from __future__ import annotations

import importlib.util
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import triton
from torch._dynamo import device_interface
from torch._inductor import config
from torch._inductor.debug import DebugContext
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes.replace_random import replace_random_passes
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from mlirstack.dynamo.explain.graphs import graph_of_module
from mlirstack.errors import UsageError
from mlirstack.frontend.program import Program
from mlirstack.frontend.references import load
from mlirstack.supervised import Tell, serve

_TARGET = GPUTarget("cuda", 90, 32)
_H100 = SimpleNamespace(
    name="NVIDIA H100", major=9, minor=0, multi_processor_count=132, regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048, max_threads_per_block=1024, warp_size=32, total_memory=80 << 30, gcnArchName="",
    shared_memory_per_block_optin=232448, shared_memory_per_multiprocessor=233472, L2_cache_size=50 << 20,
)  # fmt: skip
_KERNEL = re.compile(r"async_compile\.triton\('(\w+)', '''(.*?)''', device_str", re.DOTALL)
_BLOCKS = {"XBLOCK": 64, "YBLOCK": 16, "ZBLOCK": 1, "R0_BLOCK": 256, "RBLOCK": 256}


class _Device(device_interface.CudaInterface):
    """CUDA's interface with the answers of a device that is not there."""

    class Worker(device_interface.CudaInterface.Worker):
        @staticmethod
        def get_device_properties(device: Any = None) -> Any:
            return _H100

        @staticmethod
        def current_device() -> int:
            return 0

        @staticmethod
        def set_device(device: int) -> None:
            pass

    get_device_properties = Worker.get_device_properties
    current_device = Worker.current_device

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def get_compute_capability(device: Any = None) -> int:
        return 90

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        return True

    @staticmethod
    def is_triton_capable(device: Any = None) -> bool:
        return True

    @staticmethod
    def raise_if_triton_unavailable(device: Any = None) -> None:
        pass

    @staticmethod
    def synchronize(device: Any = None) -> None:
        pass

    @staticmethod
    def get_raw_stream(device_idx: int) -> int:
        return 0


def _pretend() -> None:
    """Register the device with torch and with Triton."""
    from torch._inductor.runtime import triton_helpers

    device_interface.init_device_reg()
    for name in ("cuda", "cuda:0"):
        device_interface.register_interface_for_device(name, _Device)
    torch.cuda.get_device_properties = lambda device=None: _H100  # type: ignore[assignment,return-value]
    torch.cuda.get_device_capability = lambda device=None: (9, 0)
    torch.cuda.current_device = lambda: 0
    torch.cuda.device_count = lambda: 1
    driver = SimpleNamespace(
        get_current_target=lambda: _TARGET, get_current_device=lambda: 0, get_current_stream=lambda device=0: 0,
        get_active_torch_device=lambda: torch.device("cuda", 0), get_device_interface=lambda: _Device,
        get_benchmarker=lambda: None,
    )  # fmt: skip
    triton.runtime.driver.set_active(driver)
    triton_helpers.set_driver_to_gpu = lambda: None


def answer(question: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """The module that Inductor writes for the model's inference graph, that graph, and each kernel's source and PTX."""
    tell("capturing the model with torch.export")
    source = load(question["reference"], seed=question["seed"], dtype=question["dtype"])
    if isinstance(source, Program) or not isinstance(source.model, torch.nn.Module):
        raise UsageError("Triton code needs a torch module")
    exported = torch.export.export(source.model, source.inputs, source.kwargs)
    graph = exported.run_decompositions(select_decomp_table())
    _pretend()
    tell("Inductor")
    code, printed = _inductor(graph)
    tell("Triton")
    kernels = [_kernel(name, text) for name, text in dict(_KERNEL.findall(code)).items()]
    return {"code": code, "graph": printed, "kernels": kernels}


def _inductor(exported: torch.export.ExportedProgram) -> tuple[str, str]:
    """The module that Inductor writes for the graph on the device, and the graph there, printed."""
    graph = exported.graph_module
    _to_device(graph)
    arguments = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
    # Kernels are named after the ops that nodes came from, and their comments give the user's lines.
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad(), preserve_node_meta():
        inputs = [_on_device(value) for value in arguments]
        run = torch.fx.Interpreter(graph).run
        traced = make_fx(run, decomposition_table=select_decomp_table(), tracing_mode="real")(*inputs)
    options = {"triton.store_cubin": False, "compile_threads": 1, "force_disable_caches": True}
    with mode, config.patch(options), V.set_fake_mode(mode):
        replace_random_passes(traced)
        lowering = GraphLowering(traced, example_inputs=inputs, shape_env=None, is_inference=True)
        with V.set_graph_handler(lowering), V.set_debug_handler(DebugContext()):
            lowering.run(*inputs)
            written = lowering.codegen()
    first = written[0] if isinstance(written, tuple) else written
    return str(getattr(first, "value", first)), graph_of_module(traced).text


def _to_device(graph: torch.fx.GraphModule) -> None:
    for node in graph.graph.nodes:
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": torch.device("cuda", 0)}
    graph.recompile()


def _on_device(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(tuple(value.shape), value.stride(), dtype=value.dtype, device="cuda")


def _kernel(name: str, text: str) -> dict[str, str]:
    """Compile one kernel as it would be launched with middling block sizes; Inductor would try several on the device."""
    with tempfile.TemporaryDirectory() as folder:
        module = _import(Path(folder) / f"{name}.py", text.replace("triton_helpers.set_driver_to_gpu()", ""))
        tuner = getattr(module, name)
        function, meta = tuner.fn, tuner.triton_meta
        constants = {key: value for key, value in meta.get("constants", {}).items() if isinstance(key, str)}
        constants.update({argument: size for argument, size in _blocks(function.arg_names) if argument not in constants})
        signature = {a: "constexpr" if a in constants else meta["signature"][a] for a in function.arg_names}
        try:
            compiled = triton.compile(ASTSource(function, signature, constexprs=constants), target=_TARGET)
        except triton.CompilationError as error:
            return {"name": name, "source": text, "ptx": "", "why_no_ptx": str(error).strip().rpartition("\n")[2]}
    return {"name": name, "source": text, "ptx": str(compiled.asm["ptx"]), "why_no_ptx": ""}


def _blocks(arguments: Sequence[str]) -> Iterator[tuple[str, int]]:
    return ((name, _BLOCKS[name]) for name in arguments if name in _BLOCKS)


def _import(path: Path, text: str) -> ModuleType:
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    serve(answer)
