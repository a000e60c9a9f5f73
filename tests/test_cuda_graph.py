"""The graph of a kernel: what a node reads, and from what it starts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mlirstack.bindings import ir, new_context
from mlirstack.ir.ops import functions
from mlirstack.schedules.cuda.graph import KernelGraph

pytestmark = pytest.mark.portable


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with new_context(), ir.Location.unknown():
        yield


def test_a_filled_buffer_that_is_read_is_a_scalar() -> None:
    """Nothing writes the buffer: emitters leave fills out."""
    module = ir.Module.parse("""
        #id = affine_map<(i) -> (i)>
        module {
          func.func @f(%x: memref<8xf32>, %ones: memref<8xf32>, %y: memref<8xf32>) {
            %one = arith.constant 1.0 : f32
            linalg.fill ins(%one : f32) outs(%ones : memref<8xf32>)
            linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
              ins(%x, %ones : memref<8xf32>, memref<8xf32>) outs(%y : memref<8xf32>) {
            ^bb0(%a: f32, %b: f32, %old: f32):
              %sum = arith.addf %a, %b : f32
              linalg.yield %sum : f32
            }
            return
          }
        }""")
    graph = KernelGraph.of(next(iter(functions(module))))
    (node,) = graph.nodes
    x, ones = node.inputs
    assert x.tensor is not None
    assert ones.tensor is None
    assert str(ones.value.type) == "f32"
    assert [tensor.value for tensor in graph.arguments] == [x.tensor.value]
