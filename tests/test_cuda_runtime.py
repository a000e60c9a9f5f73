"""The CUDA run time over a driver in host memory: what kernels read, where temporaries lie, what is patched and when."""

from __future__ import annotations

import ctypes
import math
import struct
import threading
from dataclasses import replace
from typing import Any

import pytest
import torch
from cuda_fake import Kernel, encoded, tensor
from cuda_plans import CHAIN, DOUBLE, X_BUFFER, Y_BUFFER, X, executable, launch, main

from mlirstack.errors import (
    BundleError,
    RuntimeCheckError,
)
from mlirstack.frontend.program import ResultSpec
from mlirstack.passes.cuda.plan import (
    Argument,
    Buffer,
    Check,
    Constant,
    Fill,
    Input,
    Launch,
    PlannedFunction,
    TensorMap,
)
from mlirstack.targets.cuda import function as function_module
from mlirstack.targets.cuda.executable import Statistics
from mlirstack.targets.cuda.specialize import specialize

# ------------------------------------------------------------------------------------------------------------- arguments


def test_argument_values_are_packed_byte_by_byte() -> None:
    seen: list[tuple[Any, ...]] = []
    kinds = ("i32", "tensor_map", "f32", "pointer", "i64", "f64")
    probe = Kernel(kinds, lambda grid, *values: seen.append((grid, *values)))
    box = TensorMap("f32", (4,), (), (4,))
    step = Launch(
        "probe",
        (3, 2, 1),
        (32, 1, 1),
        (
            Argument("i32", value=-7),
            Argument("tensor_map", 0, 0, box),
            Argument("f32", value=0.1),
            Argument("pointer", 1, 8),
            Argument("i64", value=-(2**40)),
            Argument("f64", value=-math.inf),
        ),
    )
    loaded, _ = executable(main((X,), (X_BUFFER, Y_BUFFER), (step,), (1,)), kernels={"probe": probe})
    x = torch.ones(4)
    (y,) = loaded.run([x])
    single = struct.unpack("f", struct.pack("f", 0.1))[0]
    assert seen == [((3, 2, 1), -7, encoded(x.data_ptr()), single, y.data_ptr() + 8, -(2**40), -math.inf)]


def test_only_what_changed_is_patched() -> None:
    box = TensorMap("f32", (4,), (), (4,))
    step = Launch("probe", (1, 1, 1), (32, 1, 1), (Argument("tensor_map", 0, 0, box), Argument("pointer", 1)))
    probe = Kernel(("tensor_map", "pointer"))
    function = main((X, replace(X, index=1)), (X_BUFFER, Buffer("input", 16, index=1)), (step,), ())
    loaded, driver = executable(function, (), kernels={"probe": probe})
    a, b, c = torch.ones(4), torch.ones(4), torch.ones(4)
    for first, second in ((a, b), (a, b), (a, c), (c, c)):
        loaded.run([first, second])
    assert [call[2] for call in driver.named("encode")] == [a.data_ptr(), c.data_ptr()]
    assert [call[3][1] for call in driver.named("launch")] == [t.data_ptr() for t in (b, b, c, c)]


def test_strided_and_unaligned_inputs_are_copied_and_counted() -> None:
    loaded, _ = executable(DOUBLE)
    storage = torch.arange(8.0)
    for given in (storage[:4], storage[::2], storage[1:5], torch.ones(1).expand(4)):
        torch.testing.assert_close(loaded.run([given])[0], 2 * given)
    assert loaded.copies == 3


def test_temporaries_lie_in_the_arena_at_their_offsets() -> None:
    loaded, driver = executable(CHAIN)
    loaded.use_graph = False
    torch.testing.assert_close(loaded.run([torch.arange(4.0)])[0], 6 * torch.arange(4.0))
    first, second = driver.named("launch")
    arena = first[3][1] - 256
    assert second[3][0] == arena and second[3][1] == arena + 256
    assert driver.named("fill")[1] == ("fill", arena, 255, 1, 16)
    assert loaded.statistics() == Statistics(2, 2, 2, 0, 512, 512, 0)


@pytest.mark.parametrize(("width", "value"), [(1, 0x7F), (2, 0x3F80), (4, 0x3F800000)])
def test_fills_repeat_a_pattern(width: int, value: int) -> None:
    step = Fill(1, 12, value, width, 4)
    loaded, driver = executable(main((X,), (X_BUFFER, Y_BUFFER), (launch(0, 1), step), (1,)))
    (y,) = loaded.run([torch.ones(4)])
    assert driver.named("fill")[0][2:] == (value, width, 12 // width)
    raw = y.view(torch.uint8).tolist()
    assert raw[:4] == [0, 0, 0, 0x40] and raw[4:] == list(value.to_bytes(width, "little") * (12 // width))


def test_constants_are_uploaded_once() -> None:
    table = Constant.of("f32", (4,), struct.pack("4f", 1, 2, 3, 4))
    function = main((), (Buffer("constant", 16, "f32", index=0), Y_BUFFER), (launch(0, 1, 10.0),), (1,))
    loaded, _ = executable(function, constants=(table,))
    assert loaded.run([])[0].tolist() == [10, 20, 30, 40]
    assert loaded.statistics().resident_bytes == 16


# ---------------------------------------------------------------------------------------------------------------- checks


def checked(condition: Any = 1) -> PlannedFunction:
    flags = Buffer("input", 2, index=1)
    steps = (
        launch(0, 2),
        Check("first", 1, 0),
        Check("second", 1, 1),
        Check("never", condition=condition),
        launch(0, 2, 3.0),
    )
    return main((X, Input("i1", (2,), "argument", 1)), (X_BUFFER, flags, Y_BUFFER), steps, (2,))


CHECKED_ARGUMENTS = (tensor("x", [4], 0), tensor("ok", [2], 1, "bool"))


@pytest.mark.parametrize("use_graph", [False, True])
def test_a_failed_check_is_raised_after_all_is_launched(use_graph: bool) -> None:
    loaded, driver = executable(checked(), arguments=CHECKED_ARGUMENTS)
    loaded.use_graph = use_graph
    good, bad = torch.tensor([True, True]), torch.tensor([True, False])
    assert loaded.run([torch.ones(4), good])[0].tolist() == [3] * 4
    with pytest.raises(RuntimeCheckError, match="failed at run time: second"):
        loaded.run([torch.ones(4), bad])
    assert loaded.run([torch.ones(4), good])[0].tolist() == [3] * 4
    if not use_graph:
        kinds = [call[0] for call in driver.calls][3:9]  # after the kernels and the assertions are loaded, and the wait
        assert kinds == ["launch", "copy_to_host", "copy_to_host", "record", "launch", "wait"]


def test_a_flag_that_the_event_did_not_wait_for_is_waited_for() -> None:
    loaded, driver = executable(checked(), arguments=CHECKED_ARGUMENTS)
    driver.calls.clear()
    loaded.run([torch.ones(4), torch.tensor([True, True])])
    assert not driver.named("synchronize")
    driver.slow = True
    with pytest.raises(RuntimeCheckError, match="second"):
        loaded.run([torch.ones(4), torch.tensor([True, False])])
    assert driver.named("synchronize") == [("synchronize", 0)]


def test_a_condition_that_does_not_hold_stops_before_any_launch() -> None:
    loaded, driver = executable(checked(["eq", ["dim", 0, 0], 5]), arguments=CHECKED_ARGUMENTS)
    with pytest.raises(RuntimeCheckError, match="failed at run time: never"):
        loaded.run([torch.ones(4), torch.tensor([True, True])])
    assert not driver.named("launch")


@pytest.mark.parametrize("use_graph", [False, True])
def test_in_a_graph_of_the_user_s_the_device_checks(use_graph: bool) -> None:
    seen: list[tuple[str, int]] = []

    def asserting(name: str) -> Kernel:
        return Kernel(("pointer",), lambda grid, flag: seen.append((name, ctypes.c_uint8.from_address(flag).value)))

    kernels = {name: asserting(name) for name in ("mlirstack_assert_0", "mlirstack_assert_1")}
    loaded, driver = executable(checked(), arguments=CHECKED_ARGUMENTS, kernels=kernels)
    loaded.use_graph = use_graph
    (module,) = [code for _, code in driver.named("load") if b"__assertfail" in code]
    assert b"mlirstack_assert_1" in module and bytes(str([*b"second"])[1:-1], "ascii") in module
    driver.calls.clear()
    driver.capturing = True
    for flags in ([True, True], [True, False]):
        assert loaded.run([torch.ones(4), torch.tensor(flags)])[0].tolist() == [3] * 4
    assert [call[0] for call in driver.calls] == ["launch"] * 8  # nothing that a captured stream refuses, no waiting
    assert seen == [
        ("mlirstack_assert_0", 1),
        ("mlirstack_assert_1", 1),
        ("mlirstack_assert_0", 1),
        ("mlirstack_assert_1", 0),
    ]
    driver.capturing = False
    with pytest.raises(RuntimeCheckError, match="second"):
        loaded.run([torch.ones(4), torch.tensor([True, False])])


# ---------------------------------------------------------------------------------------------------------------- graphs


def test_graphs_are_for_plans_of_some_steps() -> None:
    assert executable(CHAIN)[0].use_graph
    assert not executable(DOUBLE)[0].use_graph


def test_a_graph_is_built_once_per_stream_and_updated_where_addresses_changed() -> None:
    loaded, driver = executable(CHAIN)
    inputs = [torch.full((4,), float(i)) for i in range(3)]
    kept = []
    for x in (*inputs, *inputs):
        driver.calls.clear()
        kept.append((x, loaded.run([x])[0]))
        updates = [call[1] for call in driver.named("update")]
        # Step 0 reads the input and step 4 writes the result; the arena stays.  The first call builds the nodes.
        assert updates == ([] if len(kept) == 1 else [0, 4])
    for x, y in kept:
        torch.testing.assert_close(y, 6 * x)
    assert len({y.data_ptr() for _, y in kept}) == len(kept)
    assert not driver.named("launch")
    driver.calls.clear()
    driver.current_stream = 7
    loaded.run([inputs[0]])
    assert driver.calls == [("graph",), ("launch_graph", 7)]


def test_the_user_s_own_capture_takes_the_launches() -> None:
    loaded, driver = executable(CHAIN)
    driver.capturing = True
    torch.testing.assert_close(loaded.run([torch.ones(4)])[0], torch.full((4,), 6.0))
    assert not driver.named("graph") and len(driver.named("launch")) == 2


@pytest.mark.parametrize("use_graph", [False, True])
def test_threads_do_not_meet(use_graph: bool) -> None:
    loaded, _ = executable(CHAIN)
    loaded.use_graph = use_graph
    wrong: list[float] = []

    def work(number: int) -> None:
        for i in range(200):
            value = float(number * 1000 + i)
            if loaded.run([torch.full((4,), value)])[0].tolist() != [6 * value] * 4:
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# -------------------------------------------------------------------------------------------------------- dynamic shapes

N = ["dim", 0, 0]
BYTES = ["mul", N, 4]
DYNAMIC = main(
    (Input("f32", (None,), "argument", 0),),
    (
        Buffer("input", BYTES, index=0),
        Buffer("temporary", BYTES, first=0, last=1),
        Buffer("temporary", BYTES, first=1, last=2),
        Buffer("temporary", BYTES, first=2, last=3),
        Buffer("result", BYTES, "f32", (N,)),
    ),
    tuple(launch(i, i + 1, 2.0, N, grid=(["ceildiv", N, 128], 1, 1)) for i in range(4)),
    (4,),
    arena_bytes=None,
    unshared_bytes=None,
)


def test_shapes_are_evaluated_and_laid_out_once_each() -> None:
    static = specialize(DYNAMIC, {0: (300,)}, {})
    assert [b.offset for b in static.buffers if b.kind == "temporary"] == [0, 1280, 0]
    assert (static.arena_bytes, static.unshared_bytes) == (2560, 3840)
    assert [step.grid for step in static.steps if isinstance(step, Launch)] == [(3, 1, 1)] * 4
    assert static.buffers[4].shape == (300,)

    loaded, driver = executable(DYNAMIC, (ResultSpec(("n",), "float32"),))
    for size in (3, 300, 3, 0, 300):
        (y,) = loaded.run([torch.ones(size)])
        assert y.tolist() == [16] * size
    assert [call[2][0] for call in driver.named("launch")] == [1] * 4 + [3] * 4 + [1] * 4 + [3] * 4
    assert len(loaded._main._known) == 3
    assert loaded.statistics([torch.ones(300)]).arena_bytes == 2560


def test_the_number_of_remembered_shapes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_module, "REMEMBERED_SHAPES", 2)
    loaded, _ = executable(DYNAMIC, (ResultSpec(("n",), "float32"),))
    for size in (1, 2, 3, 1):
        assert loaded.run([torch.ones(size)])[0].tolist() == [16] * size
    assert len(loaded._main._known) == 2


def test_a_grid_must_divide_by_the_cluster() -> None:
    function = main((X,), (X_BUFFER, Y_BUFFER), (launch(0, 1, grid=(3, 1, 1), cluster=2),), (1,))
    with pytest.raises(BundleError, match="3 blocks do not divide by cluster 2"):
        executable(function)
