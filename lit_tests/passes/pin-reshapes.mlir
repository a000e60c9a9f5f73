// RUN: mlirstack-opt %s --mlirstack-pin-reshapes | FileCheck %s
// RUN: mlirstack-opt %s --mlirstack-pin-reshapes --linalg-fuse-elementwise-ops --mlirstack-pin-broadcasts='remove=true' --canonicalize | FileCheck %s --check-prefix=FUSED

// Heads are put side by side, then multiplied.  The transposition stays apart, and the product has one loop over K.
// CHECK-LABEL: func.func @main(
// CHECK:         %[[ROWS:.*]] = tensor.collapse_shape
// CHECK:         call @mlirstack_pin{{.*}}(%[[ROWS]])
// CHECK:         %[[PRODUCT:.*]] = linalg.batch_matmul ins(%[[ROWS]],
// CHECK:         call @mlirstack_pin{{.*}}(%[[PRODUCT]])
// FUSED:         linalg.batch_matmul
// FUSED-NOT:     mlirstack_pin
#heads = affine_map<(b, s, h, d) -> (b, h, s, d)>
#all = affine_map<(b, s, h, d) -> (b, s, h, d)>
func.func @main(%x: tensor<1x4x16x8xf32>, %w: tensor<1x32x12xf32>, %init: tensor<1x16x12xf32>) -> tensor<1x16x3x4xf32> {
  %empty = tensor.empty() : tensor<1x16x4x8xf32>
  %t = linalg.generic {indexing_maps = [#heads, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x : tensor<1x4x16x8xf32>) outs(%empty : tensor<1x16x4x8xf32>) {
  ^bb0(%a: f32, %out: f32):
    linalg.yield %a : f32
  } -> tensor<1x16x4x8xf32>
  %rows = tensor.collapse_shape %t [[0], [1], [2, 3]] : tensor<1x16x4x8xf32> into tensor<1x16x32xf32>
  %0 = linalg.batch_matmul ins(%rows, %w : tensor<1x16x32xf32>, tensor<1x32x12xf32>) outs(%init : tensor<1x16x12xf32>) -> tensor<1x16x12xf32>
  %1 = tensor.expand_shape %0 [[0], [1], [2, 3]] output_shape [1, 16, 3, 4] : tensor<1x16x12xf32> into tensor<1x16x3x4xf32>
  return %1 : tensor<1x16x3x4xf32>
}
