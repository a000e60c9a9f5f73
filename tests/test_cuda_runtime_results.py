"""What the CUDA run time takes and gives, over a driver in host memory: numbers, results, parameters, errors."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from cuda_fake import FakeDriver, signature, tensor
from cuda_plans import CHAIN, DOUBLE, ROW, X_BUFFER, Y_BUFFER, X, executable, launch, main, plan

from mlirstack.errors import (
    BundleError,
    DeviceMemoryError,
    SignatureError,
    TargetUnavailableError,
)
from mlirstack.frontend.program import ArgumentSpec, Mutation, OutputSpec, ResultSpec
from mlirstack.passes.cuda.plan import (
    Buffer,
    Input,
    PlannedFunction,
    ResultRef,
)
from mlirstack.targets.callable import CompiledFunction
from mlirstack.targets.cuda.executable import CudaExecutable, Placement

# ----------------------------------------------------------------------------------------------------- numbers, results


def test_python_numbers_go_in_and_come_out() -> None:
    factor = Input("f64", None, "argument", 1)
    count = Input("i64", None, "argument", 2)
    function = PlannedFunction(
        "main",
        (X, factor, count),
        (X_BUFFER, Y_BUFFER),
        (launch(0, 1, ["scalar", 1]),),  # type: ignore[arg-type]
        (ResultRef(1), ResultRef(value=["mul", ["scalar", 2], 3]), ResultRef(value=["gt", ["scalar", 2], 1])),
    )
    arguments = (
        tensor("x", [4], 0),
        ArgumentSpec("f", "input", None, "float64", 1),
        ArgumentSpec("n", "input", None, "int64", 2),
    )
    results = (ROW, ResultSpec(None, "int64"), ResultSpec(None, "bool"))
    loaded, _ = executable(function, results, arguments)
    call = CompiledFunction(loaded, signature(arguments, results), {})
    y, n, flag = call(torch.ones(4), 0.5, 7)
    assert y.tolist() == [0.5] * 4 and n == 21 and flag is True
    zeros = [math.copysign(1, call(torch.ones(4), zero, 1)[0][0].item()) for zero in (0.0, -0.0)]
    assert zeros == [1.0, -1.0]


def test_results_own_their_memory() -> None:
    function = main((X,), (X_BUFFER, Y_BUFFER), (launch(0, 1),), (1, 0, 1))
    loaded, _ = executable(function, (ROW, ROW, ROW))
    x = torch.ones(4)
    first, returned, again = loaded.run([x])
    assert first.tolist() == again.tolist() == [2] * 4 and returned.tolist() == [1] * 4
    assert len({t.data_ptr() for t in (x, first, returned, again)}) == 4


def test_results_of_no_and_of_one_element() -> None:
    buffers = (X_BUFFER, Buffer("result", 0, "f32", (0, 3)), Buffer("result", 4, "f32", ()), Buffer("result", 1, "i8", (1,)))
    function = main((X,), buffers, (launch(0, 2, count=1), launch(0, 1, grid=(0, 1, 1))), (1, 2, 3))
    specs = (ResultSpec((0, 3), "float32"), ResultSpec((), "float32"), ResultSpec((1,), "uint8"))
    loaded, driver = executable(function, specs)
    empty, scalar, byte = loaded.run([torch.ones(4)])
    assert empty.shape == (0, 3) and scalar.shape == () and scalar.item() == 2 and byte.dtype == torch.uint8
    assert len(driver.named("launch")) == 1


# ------------------------------------------------------------------------------------------------------------ parameters

W = ArgumentSpec("w", "parameter", (4,), "float32")


def test_prepare_runs_once_at_load() -> None:
    w = Input("f32", (4,), "argument", 1)
    prepare = PlannedFunction("prepare", (w,), (X_BUFFER, Y_BUFFER), (launch(0, 1, 5.0),), (ResultRef(1),))
    inputs = (X, Input("f32", (4,), "prepared", 0))
    buffers = (Buffer("input", 16, index=1), Y_BUFFER)
    arguments = (tensor("x", [4], 0), W)
    function = main(inputs, buffers, (launch(0, 1, 2.0),), (1,))
    loaded, driver = executable(function, (ROW,), arguments, more=(prepare,), parameters={"w": torch.ones(4)})
    assert [call[0] for call in driver.calls] == ["load", "launch", "synchronize"]
    assert [loaded.run([torch.zeros(4)])[0].tolist() for _ in range(2)] == [[10.0] * 4] * 2
    assert len(driver.named("launch")) == 3


def test_what_the_model_writes_is_seen_in_the_parameters() -> None:
    arguments = (tensor("x", [4], 0), W)
    function = main((Input("f32", (4,), "argument", 1),), (X_BUFFER, Y_BUFFER), (launch(0, 1),), (1,))
    written = signature(arguments, (ROW,), (Mutation(0, name="w"),), outputs=(OutputSpec("parameter", name="w"),))
    w = torch.ones(4)
    loaded, _ = executable(function, signature=written, parameters={"w": w})
    call = CompiledFunction(loaded, written, {"w": w})
    assert [call(torch.zeros(4))[0][0].item() for _ in range(3)] == [2, 4, 8]
    assert call.parameters["w"].tolist() == [8] * 4


# ---------------------------------------------------------------------------------------------------------------- errors


def test_memory_that_is_short_is_told_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, _ = executable(CHAIN)

    def refuse(*shape: Any, **others: Any) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "empty", refuse)
    with pytest.raises(DeviceMemoryError, match="512 bytes of temporaries, 16 bytes of results"):
        loaded.run([torch.ones(4)])


def test_a_plan_and_a_signature_that_disagree_are_refused() -> None:
    with pytest.raises(BundleError, match="1 results, the signature 2"):
        executable(DOUBLE, (ROW, ROW))
    with pytest.raises(BundleError, match=r"torch.float32, the signature float16"):
        executable(DOUBLE, (ResultSpec((4,), "float16"),))
    with pytest.raises(BundleError, match="is a number for the launch plan or the signature"):
        executable(DOUBLE, (ResultSpec(None, "int64"),))
    with pytest.raises(BundleError, match="no function 'main'"):
        CudaExecutable(plan(), b"", signature((), ()), {}, FakeDriver({}))


def test_large_shared_memory_is_allowed_once_and_too_much_is_refused() -> None:
    def with_shared(size: int) -> PlannedFunction:
        return main((X,), (X_BUFFER, Y_BUFFER), (launch(0, 1), launch(0, 1, shared=size)), (1,))

    _, driver = executable(with_shared(200_000))
    assert driver.named("allow_shared") == [("allow_shared", "scale", 200_000)]
    assert not executable(with_shared(48 * 1024))[1].named("allow_shared")
    with pytest.raises(TargetUnavailableError, match=r"'scale' needs 300000 bytes of shared memory, .* has 232448"):
        executable(with_shared(300_000))


def test_modules_are_unloaded_with_their_program() -> None:
    loaded, driver = executable(DOUBLE)
    del loaded
    assert driver.named("unload") == [("unload", b"code")]


def test_inputs_elsewhere_are_refused_with_the_way_out() -> None:
    loaded, _ = executable(DOUBLE)
    loaded.device = "cuda:0"
    call = CompiledFunction(loaded, signature((tensor("x", [4], 0),), (ROW,)), {})
    with pytest.raises(SignatureError, match=r"'x0?' is on cpu, expected cuda:0\nhint: move it: x.to\('cuda:0'\)"):
        call(torch.ones(4))


def test_constants_of_one_size_stay_apart_on_the_device() -> None:
    # Each is made for a moment on the host, where the next one of its size may get the same address.
    place = Placement(torch.device("meta"))
    moved = [place(torch.frombuffer(bytearray(64), dtype=torch.uint8)) for _ in range(32)]
    assert len({id(tensor) for tensor in moved}) == 32
