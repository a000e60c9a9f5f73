// RUN: mlirstack-opt %s --mlirstack-pin-reshapes | FileCheck %s
// RUN: mlirstack-opt %s --mlirstack-pin-reshapes --linalg-fuse-elementwise-ops --mlirstack-pin-broadcasts='remove=true' --canonicalize | FileCheck %s --check-prefix=FUSED
// RUN: mlirstack-opt %s --mlirstack-pin-reshapes='computed=true' --linalg-fuse-elementwise-ops --mlirstack-pin-broadcasts='remove=true' --canonicalize | FileCheck %s --check-prefix=APART

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

// Weights of attention, normalized: a factor of a batch of products with eight columns each.  Computed apart, the product is
// one of two tensors; fused, every weight would be normalized for every column.
// FUSED-LABEL: func.func @weights(
// FUSED-COUNT-1: linalg.generic
// FUSED-NOT:   linalg.generic
// FUSED-LABEL: func.func @one_row(
// APART-LABEL: func.func @weights(
// APART:         %[[WEIGHTS:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "parallel"]
// APART:           arith.mulf
// APART:         linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%[[WEIGHTS]],
// A factor that is used for one row is computed where it is used.
// APART-LABEL: func.func @one_row(
// APART-COUNT-1: linalg.generic
// APART-NOT:   linalg.generic
#row = affine_map<(b, h, m, k) -> (b, h, m)>
func.func @weights(%x: tensor<2x3x16x16xf32>, %r: tensor<2x3x16xf32>, %v: tensor<6x16x8xf32>, %init: tensor<6x16x8xf32>) -> tensor<2x3x16x8xf32> {
  %empty = tensor.empty() : tensor<2x3x16x16xf32>
  %p = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x, %r : tensor<2x3x16x16xf32>, tensor<2x3x16xf32>) outs(%empty : tensor<2x3x16x16xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<2x3x16x16xf32>
  %heads = tensor.collapse_shape %p [[0, 1], [2], [3]] : tensor<2x3x16x16xf32> into tensor<6x16x16xf32>
  %1 = linalg.batch_matmul ins(%heads, %v : tensor<6x16x16xf32>, tensor<6x16x8xf32>) outs(%init : tensor<6x16x8xf32>) -> tensor<6x16x8xf32>
  %2 = tensor.expand_shape %1 [[0, 1], [2], [3]] output_shape [2, 3, 16, 8] : tensor<6x16x8xf32> into tensor<2x3x16x8xf32>
  return %2 : tensor<2x3x16x8xf32>
}

func.func @one_row(%x: tensor<6x1x16xf32>, %v: tensor<2x3x16x8xf32>, %r: tensor<2x3x16xf32>, %init: tensor<6x1x8xf32>) -> tensor<2x3x1x8xf32> {
  %empty = tensor.empty() : tensor<2x3x16x8xf32>
  %p = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%v, %r : tensor<2x3x16x8xf32>, tensor<2x3x16xf32>) outs(%empty : tensor<2x3x16x8xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<2x3x16x8xf32>
  %heads = tensor.collapse_shape %p [[0, 1], [2], [3]] : tensor<2x3x16x8xf32> into tensor<6x16x8xf32>
  %1 = linalg.batch_matmul ins(%x, %heads : tensor<6x1x16xf32>, tensor<6x16x8xf32>) outs(%init : tensor<6x1x8xf32>) -> tensor<6x1x8xf32>
  %2 = tensor.expand_shape %1 [[0, 1], [2], [3]] output_shape [2, 3, 1, 8] : tensor<6x1x8xf32> into tensor<2x3x1x8xf32>
  return %2 : tensor<2x3x1x8xf32>
}
