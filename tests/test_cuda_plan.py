"""The launch plan of whole models: written from the stage ``gpu``, read back from JSON, executed step by step, compared with
eager; and what a plan refuses to say."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from plan_on_simt import check_plan, run_model_by_plan
from torch import nn

from mlirstack import api, zoo
from mlirstack.bindings import ir, new_context
from mlirstack.errors import RuntimeCheckError, StageError
from mlirstack.passes.cuda.constant_bytes import constant_of
from mlirstack.passes.cuda.plan import Check, Copy, Launch, LaunchPlan
from mlirstack.passes.cuda.plan_views import collapsed, contiguous, expanded, fold, subview
from mlirstack.passes.cuda.plan_writer import plan_of

pytestmark = pytest.mark.target


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with new_context(), ir.Location.unknown():
        yield


@cache
def lowered(name: str, arch: str = "sm_90a") -> Any:
    model = zoo.get(name)
    return model, api.lower(model.module, model.inputs, dynamic_shapes=model.dynamic_shapes, target=f"cuda:{arch}", to="gpu")


def written(body: str, arguments: str, abi: str, top: str = "") -> LaunchPlan:
    """The plan of one entry point over memrefs."""
    module = ir.Module.parse(f'{top} func.func @main({arguments}) attributes {{mlirstack.abi = "{abi}"}} {{ {body} }}')
    return plan_of(module)


# ------------------------------------------------------------------------------------------------------------ whole models


# Slices and copies, dynamic sizes, gathers with checks, scatter, a transformer, several results, constants, scalars.
REPRESENTATIVE = (
    "roll_flip", "cat_dynamic", "softmax_dynamic", "embedding", "index_put", "gpt2_like", "nested_outputs",
    "constant_outputs", "scalar_inputs", "group_norm", "layer_norm_f16", "empty_tensor", "attention_dynamic_length",
)  # fmt: skip


@pytest.mark.parametrize("name", REPRESENTATIVE)
def test_plan_gives_the_answer_of_eager(name: str) -> None:
    model, lowering = lowered(name)
    expected, _ = torch.utils._pytree.tree_flatten(model.module(*model.inputs))
    found = run_model_by_plan(lowering, model.inputs)
    for tensor, wanted in zip(found, [e for e in expected if isinstance(e, torch.Tensor)], strict=False):
        tolerance = 1e-2 if wanted.dtype in (torch.float16, torch.bfloat16) else 1e-4
        torch.testing.assert_close(tensor, wanted.detach(), rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.names()[::3])
def test_models_have_a_plan_for_sm_80(name: str) -> None:
    """The plans of all models for sm_90a are checked where they are executed, in test_simt_zoo."""
    _, lowering = lowered(name, "sm_80")
    check_plan(plan_of(lowering.payload))


class Gather(nn.Module):
    """Rows of a table."""

    def forward(self, table: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
        """(5, 3), (2,) → (2, 3)."""
        return table[which]


def test_wrong_index_fails_a_check_and_touches_nothing_else() -> None:
    table, which = torch.randn(5, 3), torch.tensor([4, 0])
    lowering = api.lower(Gather(), (table, which), target="cuda", to="gpu")
    torch.testing.assert_close(run_model_by_plan(lowering, (table, which))[0], table[which])
    with pytest.raises(RuntimeCheckError, match="index"):
        run_model_by_plan(lowering, (table, torch.tensor([4, 5])))


def test_temporaries_share_the_arena() -> None:
    _, lowering = lowered("gpt2_like")
    main = plan_of(lowering.payload).function("main")
    assert main is not None and main.arena_bytes is not None and main.unshared_bytes is not None
    assert 0 < main.arena_bytes < main.unshared_bytes


def test_weights_are_read_where_they_are() -> None:
    """A linear layer prepares nothing: no copy of its weight, in whatever layout."""
    lowering = api.lower(nn.Linear(64, 96), (torch.randn(32, 64),), target="cuda", to="gpu")
    plan = plan_of(lowering.payload)
    assert [function.name for function in plan.functions] == ["main"]
    assert len([s for s in plan.functions[0].steps if isinstance(s, Launch)]) == 1


# ------------------------------------------------------------------------------------------------------- host code by hand


def test_slice_of_a_slice_is_an_offset() -> None:
    plan = written(
        """
        %rows = memref.subview %x[2, 0] [4, 16] [1, 1] : memref<8x16xf32> to memref<4x16xf32, strided<[16, 1], offset: 32>>
        %row = memref.subview %rows[1, 4] [1, 8] [1, 1]
            : memref<4x16xf32, strided<[16, 1], offset: 32>> to memref<8xf32, strided<[1], offset: 52>>
        memref.copy %row, %y : memref<8xf32, strided<[1], offset: 52>> to memref<8xf32>
        return
        """,
        "%x: memref<8x16xf32>, %y: memref<8xf32>",
        "main(a0: memref<8x16xf32>) outs(memref<8xf32>) returned() order(0)",
    )
    assert plan.functions[0].steps == (Copy(0, 1, 32, source_offset=52 * 4),)


def test_sizes_are_expressions_of_the_inputs() -> None:
    plan = written(
        """
        %c0 = arith.constant 0 : index
        %n = memref.dim %x, %c0 : memref<?x16xf16>
        %y = memref.alloc(%n) : memref<?x16xf16>
        memref.copy %x, %y : memref<?x16xf16> to memref<?x16xf16>
        return %y : memref<?x16xf16>
        """,
        "%x: memref<?x16xf16>) -> (memref<?x16xf16>",
        "main(a0: memref<?x16xf16>) outs() returned(memref<?x16xf16>) order(0)",
    )
    function = plan.functions[0]
    assert function.steps == (Copy(0, 1, ["mul", ["mul", ["dim", 0, 0], 16], 2]),)
    assert function.buffers[1].kind == "result"
    assert function.buffers[1].shape == (["dim", 0, 0], 16)
    assert function.results[0].buffer == 1


def test_condition_on_sizes_is_a_check_of_the_host() -> None:
    plan = written(
        """
        %c0 = arith.constant 0 : index
        %a = memref.dim %x, %c0 : memref<?xf32>
        %b = memref.dim %y, %c0 : memref<?xf32>
        %same = arith.cmpi eq, %a, %b : index
        cf.assert %same, "sizes differ"
        cf.assert %same, "sizes differ"
        return
        """,
        "%x: memref<?xf32>, %y: memref<?xf32>",
        "main(a0: memref<?xf32>, a1: memref<?xf32>) outs() returned() order()",
    )
    assert plan.functions[0].steps == (Check("sizes differ", condition=["eq", ["dim", 0, 0], ["dim", 1, 0]]),)


def test_size_that_the_device_decides_is_refused() -> None:
    with pytest.raises(StageError, match="device memory") as refused:
        written(
            """
            %n = memref.load %x[] : memref<i64>
            %m = arith.index_cast %n : i64 to index
            %y = memref.alloc(%m) : memref<?xf32>
            return
            """,
            "%x: memref<i64>",
            "main(a0: memref<i64>) outs() returned() order()",
        )
    assert refused.value.op == "arith.index_cast"


def test_copy_with_gaps_is_refused() -> None:
    with pytest.raises(StageError, match="gaps"):
        written(
            """
            %s = memref.subview %x[0, 0] [8, 4] [1, 1] : memref<8x16xf32> to memref<8x4xf32, strided<[16, 1]>>
            memref.copy %s, %y : memref<8x4xf32, strided<[16, 1]>> to memref<8x4xf32>
            return
            """,
            "%x: memref<8x16xf32>, %y: memref<8x4xf32>",
            "main(a0: memref<8x16xf32>) outs(memref<8x4xf32>) returned() order(0)",
        )


def test_constants_keep_their_bits() -> None:
    bfloats = constant_of(ir.Attribute.parse("dense<[1.0, -2.5, 0x7FC0]> : tensor<3xbf16>"))
    assert bfloats.bytes() == bytes.fromhex("803f 20c0 c07f".replace(" ", ""))
    assert constant_of(ir.Attribute.parse("dense<true> : tensor<3xi1>")).bytes() == b"\1\1\1"
    assert constant_of(ir.Attribute.parse("dense<7> : tensor<2xi16>")).bytes() == b"\7\0\7\0"
    assert constant_of(ir.Attribute.parse("dense<1.5> : tensor<2xbf16>")).bytes() == b"\xc0\x3f\xc0\x3f"
    module = ir.Module.parse(
        "memref.global @x : memref<2xi16> = dense_resource<x>\n"
        '{-# dialect_resources: {builtin: {x: "0x0200000001000200"}} #-}'
    )
    assert constant_of(module.body.operations[0].attributes["initial_value"]).bytes() == b"\1\0\2\0"


def test_views_are_arithmetic_on_strides() -> None:
    n = ["dim", 0, 0]
    view = contiguous(3, [n, 6, 4], 2)
    assert (view.strides, view.is_contiguous, view.bytes) == ((24, 4, 1), True, ["mul", ["mul", ["mul", n, 6], 4], 2])
    sliced = subview(view, [1, 2, 0], [5, 3, 4], [1, 2, 1], kept=[0, 1, 2])
    assert (sliced.offset, sliced.strides, sliced.is_contiguous) == ((24 + 8) * 2, (24, 8, 1), False)
    split = expanded(view, [[0], [1, 2], [3]], [n, 2, 3, 4])
    assert split.strides == (24, 12, 4, 1)
    assert collapsed(split, [[0], [1, 2, 3]]).strides == (24, 1)
    assert fold("mul", n, 0) == 0
    assert fold("add", n, 0) == n
