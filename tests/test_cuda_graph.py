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


def test_a_view_is_of_what_its_buffer_holds_when_it_is_read() -> None:
    """Bufferization gives two tensors one buffer, and their views become one as well."""
    module = ir.Module.parse("""
        #id = affine_map<(i, j) -> (i, j)>
        #flat = affine_map<(i) -> (i)>
        module {
          func.func @f(%x: memref<2x4xf32>, %y: memref<2x4xf32>, %sums: memref<8xf32>) {
            %buffer = memref.alloc() : memref<2x4xf32>
            linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
              ins(%x : memref<2x4xf32>) outs(%buffer : memref<2x4xf32>) {
            ^bb0(%a: f32, %old: f32):
              linalg.yield %a : f32
            }
            %view = memref.collapse_shape %buffer [[0, 1]] : memref<2x4xf32> into memref<8xf32>
            linalg.generic {indexing_maps = [#flat, #flat], iterator_types = ["parallel"]}
              ins(%view : memref<8xf32>) outs(%sums : memref<8xf32>) {
            ^bb0(%a: f32, %old: f32):
              linalg.yield %a : f32
            }
            linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
              ins(%y : memref<2x4xf32>) outs(%buffer : memref<2x4xf32>) {
            ^bb0(%a: f32, %old: f32):
              linalg.yield %a : f32
            }
            linalg.generic {indexing_maps = [#flat, #flat, #flat], iterator_types = ["parallel"]}
              ins(%sums, %view : memref<8xf32>, memref<8xf32>) outs(%sums : memref<8xf32>) {
            ^bb0(%a: f32, %b: f32, %old: f32):
              %sum = arith.addf %a, %b : f32
              linalg.yield %sum : f32
            }
            return
          }
        }""")
    graph = KernelGraph.of(next(iter(functions(module))))
    first, second = (view for view in graph.nodes if view.name == "memref.collapse_shape")
    of_x, copy, of_y, addition = graph.structured()
    assert first.inputs[0].tensor is of_x.outputs[0].tensor
    assert second.inputs[0].tensor is of_y.outputs[0].tensor
    assert copy.inputs[0].tensor is first.outputs[0].tensor
    assert addition.inputs[1].tensor is second.outputs[0].tensor
