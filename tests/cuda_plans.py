"""Launch plans of one function for the fake driver of ``cuda_fake``, loaded as a program would be."""

from __future__ import annotations

from typing import Any

from cuda_fake import SCALE, FakeDriver, Kernel, signature, tensor

from mlirstack.frontend.program import ArgumentSpec, ResultSpec
from mlirstack.passes.cuda.plan import (
    Argument,
    Buffer,
    Constant,
    Copy,
    Fill,
    Input,
    Launch,
    LaunchPlan,
    PlannedFunction,
    ResultRef,
)
from mlirstack.targets.cuda.executable import CudaExecutable

X = Input("f32", (4,), "argument", 0)
X_BUFFER = Buffer("input", 16, index=0)
Y_BUFFER = Buffer("result", 16, "f32", (4,))
ROW = ResultSpec((4,), "float32")


def launch(source: int, destination: int, factor: float = 2.0, count: Any = 4, **others: Any) -> Launch:
    """A launch of the fake kernel "scale"."""
    arguments = (
        Argument("pointer", source),
        Argument("pointer", destination),
        Argument("i64", value=count),
        Argument("f32", value=factor),
    )
    return Launch("scale", others.pop("grid", (1, 1, 1)), (32, 1, 1), arguments, **others)


def main(
    inputs: tuple[Input, ...], buffers: tuple[Buffer, ...], steps: tuple[Any, ...], results: tuple[int, ...], **others: Any
) -> PlannedFunction:
    return PlannedFunction("main", inputs, buffers, steps, tuple(ResultRef(i) for i in results), **others)


def plan(*functions: PlannedFunction, constants: tuple[Constant, ...] = ()) -> LaunchPlan:
    return LaunchPlan("sm_90a", functions, (), constants)


def executable(
    function: PlannedFunction,
    results: tuple[ResultSpec, ...] = (ROW,),
    arguments: tuple[ArgumentSpec, ...] | None = None,
    *,
    kernels: dict[str, Kernel] | None = None,
    **others: Any,
) -> tuple[CudaExecutable, FakeDriver]:
    """``function`` loaded into a fake driver; one tensor argument per input unless said otherwise."""
    if arguments is None:
        arguments = tuple(
            tensor(f"x{i}", ["n" if size is None else size for size in given.shape or ()], i)
            for i, given in enumerate(function.inputs)
        )
    driver = FakeDriver({"scale": SCALE, **(kernels or {})})
    constants, more, parameters = others.pop("constants", ()), others.pop("more", ()), others.pop("parameters", {})
    loaded = CudaExecutable(
        plan(function, *more, constants=constants),
        b"code",
        others.pop("signature", None) or signature(arguments, results, **others),
        parameters,
        driver,
    )
    return loaded, driver


DOUBLE = main((X,), (X_BUFFER, Y_BUFFER), (launch(0, 1),), (1,))
CHAIN = main(  # y = 2 * 3 * (x - all of it through a temporary), in six steps
    (X,),
    (X_BUFFER, Buffer("temporary", 16, offset=256), Buffer("temporary", 16, offset=0), Y_BUFFER),
    (launch(0, 1, 2.0), Copy(1, 2, 16), launch(2, 1, 3.0), Fill(2, 16, 0), Copy(1, 3, 16), Fill(2, 16, 255)),
    (3,),
    arena_bytes=512,
    unshared_bytes=512,
)
