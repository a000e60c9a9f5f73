// A weight is read as it is stored, be it as a matrix or as a batch of one; a product over four dimensions stays as it is.
// RUN: mlirstack-opt %s --mlirstack-fold-transposes --canonicalize | FileCheck %s

// CHECK-DAG: #[[NK:.*]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-DAG: #[[BNK:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>

// CHECK-LABEL: func.func @matrix(
// CHECK-SAME:    %[[X:.*]]: tensor<4x8xf32>, %[[W:.*]]: tensor<16x8xf32>
// CHECK-NOT:     linalg.transpose
// CHECK:         linalg.matmul indexing_maps = [#{{.*}}, #[[NK]], #{{.*}}] ins(%[[X]], %[[W]] :
func.func @matrix(%x: tensor<4x8xf32>, %w: tensor<16x8xf32>, %init: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %empty = tensor.empty() : tensor<8x16xf32>
  %t = linalg.transpose ins(%w : tensor<16x8xf32>) outs(%empty : tensor<8x16xf32>) permutation = [1, 0]
  %0 = linalg.matmul ins(%x, %t : tensor<4x8xf32>, tensor<8x16xf32>) outs(%init : tensor<4x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// CHECK-LABEL: func.func @batch_of_one(
// CHECK-SAME:    %[[X:.*]]: tensor<1x4x8xf32>, %[[W:.*]]: tensor<16x8xf32>
// CHECK-NOT:     linalg.transpose
// CHECK:         %[[BATCH:.*]] = tensor.expand_shape %[[W]] {{\[\[}}0, 1], [2]] output_shape [1, 16, 8]
// CHECK:         linalg.batch_matmul indexing_maps = [#{{.*}}, #[[BNK]], #{{.*}}] ins(%[[X]], %[[BATCH]] :
func.func @batch_of_one(%x: tensor<1x4x8xf32>, %w: tensor<16x8xf32>, %init: tensor<1x4x16xf32>) -> tensor<1x4x16xf32> {
  %empty = tensor.empty() : tensor<8x16xf32>
  %t = linalg.transpose ins(%w : tensor<16x8xf32>) outs(%empty : tensor<8x16xf32>) permutation = [1, 0]
  %b = tensor.expand_shape %t [[0, 1], [2]] output_shape [1, 8, 16] : tensor<8x16xf32> into tensor<1x8x16xf32>
  %0 = linalg.batch_matmul ins(%x, %b : tensor<1x4x8xf32>, tensor<1x8x16xf32>) outs(%init : tensor<1x4x16xf32>) -> tensor<1x4x16xf32>
  return %0 : tensor<1x4x16xf32>
}

// A batch that is moved cannot be said by a named op.
// CHECK-LABEL: func.func @moved_batch(
// CHECK:         linalg.transpose
// CHECK:         linalg.batch_matmul ins(
func.func @moved_batch(%x: tensor<2x4x8xf32>, %w: tensor<8x2x16xf32>, %init: tensor<2x4x16xf32>) -> tensor<2x4x16xf32> {
  %empty = tensor.empty() : tensor<2x8x16xf32>
  %t = linalg.transpose ins(%w : tensor<8x2x16xf32>) outs(%empty : tensor<2x8x16xf32>) permutation = [1, 0, 2]
  %0 = linalg.batch_matmul ins(%x, %t : tensor<2x4x8xf32>, tensor<2x8x16xf32>) outs(%init : tensor<2x4x16xf32>) -> tensor<2x4x16xf32>
  return %0 : tensor<2x4x16xf32>
}

// CHECK-LABEL: func.func @generic_product(
// CHECK-SAME:    %[[X:.*]]: tensor<2x4x8xf32>, %[[W:.*]]: tensor<8x2x16xf32>
// CHECK-NOT:     linalg.transpose
// CHECK:         linalg.generic {{.*}} ins(%[[X]], %[[W]] :
func.func @generic_product(%x: tensor<2x4x8xf32>, %w: tensor<8x2x16xf32>, %init: tensor<2x4x16xf32>) -> tensor<2x4x16xf32> {
  %empty = tensor.empty() : tensor<2x8x16xf32>
  %t = linalg.transpose ins(%w : tensor<8x2x16xf32>) outs(%empty : tensor<2x8x16xf32>) permutation = [1, 0, 2]
  %0 = linalg.generic {
    indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (b, k, n)>, affine_map<(b, m, n, k) -> (b, m, n)>],
    iterator_types = ["parallel", "parallel", "parallel", "reduction"]
  } ins(%x, %t : tensor<2x4x8xf32>, tensor<2x8x16xf32>) outs(%init : tensor<2x4x16xf32>) {
  ^bb0(%a: f32, %b: f32, %old: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %old, %p : f32
    linalg.yield %s : f32
  } -> tensor<2x4x16xf32>
  return %0 : tensor<2x4x16xf32>
}

// Keys of attention: the matrices of all batches and heads, turned one by one.
// CHECK-LABEL: func.func @heads(
// CHECK-SAME:    %[[Q:.*]]: tensor<6x4x8xf32>, %[[K:.*]]: tensor<2x3x5x8xf32>
// CHECK-NOT:     linalg.transpose
// CHECK:         %[[M:.*]] = tensor.collapse_shape %[[K]] {{\[\[}}0, 1], [2], [3]] : tensor<2x3x5x8xf32> into tensor<6x5x8xf32>
// CHECK:         linalg.batch_matmul indexing_maps = [#{{.*}}, #[[BNK]], #{{.*}}] ins(%[[Q]], %[[M]] :
func.func @heads(%q: tensor<6x4x8xf32>, %k: tensor<2x3x5x8xf32>, %init: tensor<6x4x5xf32>) -> tensor<6x4x5xf32> {
  %empty = tensor.empty() : tensor<2x3x8x5xf32>
  %t = linalg.transpose ins(%k : tensor<2x3x5x8xf32>) outs(%empty : tensor<2x3x8x5xf32>) permutation = [0, 1, 3, 2]
  %m = tensor.collapse_shape %t [[0, 1], [2], [3]] : tensor<2x3x8x5xf32> into tensor<6x8x5xf32>
  %0 = linalg.batch_matmul ins(%q, %m : tensor<6x4x8xf32>, tensor<6x8x5xf32>) outs(%init : tensor<6x4x5xf32>) -> tensor<6x4x5xf32>
  return %0 : tensor<6x4x5xf32>
}
