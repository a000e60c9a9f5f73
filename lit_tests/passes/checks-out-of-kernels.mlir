// RUN: mlirstack-opt %s --mlirstack-checks-out-of-kernels | FileCheck %s

// The bounds check leaves the loop nest: all positions first, one assertion, then reads that cannot fail.
// CHECK-LABEL: func.func @main(
// CHECK:         %[[OK:.*]] = linalg.generic
// CHECK:         %[[ALL:.*]] = tensor.extract %[[OK]][]
// CHECK:         cf.assert %[[ALL]]
// CHECK:         linalg.generic
// CHECK-NOT:       cf.assert
// CHECK:           tensor.extract
#map = affine_map<(d0) -> (d0)>
func.func @main(%table: tensor<10xf32>, %positions: tensor<4xi64>) -> tensor<4xf32> {
  %c10 = arith.constant 10 : i64
  %c0 = arith.constant 0 : i64
  %empty = tensor.empty() : tensor<4xf32>
  %0 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
      ins(%positions : tensor<4xi64>) outs(%empty : tensor<4xf32>) {
  ^bb0(%p: i64, %out: f32):
    %below = arith.cmpi slt, %p, %c10 : i64
    cf.assert %below, "index must be smaller than dim size"
    %from = arith.cmpi sge, %p, %c0 : i64
    cf.assert %from, "index must be larger or equal to 0"
    %i = arith.index_cast %p : i64 to index
    %x = tensor.extract %table[%i] : tensor<10xf32>
    linalg.yield %x : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
