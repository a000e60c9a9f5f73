// RUN: mlirstack-opt %s --mlirstack-number-arguments --mlirstack-hoist-parameters | FileCheck %s

// The transposition of a parameter is done once, in @prepare; @main takes its result, and the parameter no longer.
// CHECK-LABEL: func.func @prepare(
// CHECK-SAME:    tensor<8x4xf32> {{{.*}}mlirstack.parameter
// CHECK:         linalg.transpose
// CHECK-LABEL: func.func @main(
// CHECK-SAME:    %{{.*}}: tensor<2x4xf32> {{{.*}}}, %[[W:.*]]: tensor<4x8xf32> {{{.*}}mlirstack.prepared
// CHECK-NOT:     linalg.transpose
// CHECK:         linalg.matmul ins(%{{.*}}, %[[W]]
func.func @main(%x: tensor<2x4xf32>, %w: tensor<8x4xf32> {mlirstack.parameter = "w"}, %init: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %empty = tensor.empty() : tensor<4x8xf32>
  %t = linalg.transpose ins(%w : tensor<8x4xf32>) outs(%empty : tensor<4x8xf32>) permutation = [1, 0]
  %0 = linalg.matmul ins(%x, %t : tensor<2x4xf32>, tensor<4x8xf32>) outs(%init : tensor<2x8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}
