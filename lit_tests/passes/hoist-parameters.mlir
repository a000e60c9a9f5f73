// RUN: mlirstack-opt %s --mlirstack-number-arguments --mlirstack-hoist-parameters | FileCheck %s --check-prefixes=CHECK,WIDE
// RUN: mlirstack-opt %s --pass-pipeline='builtin.module(mlirstack-number-arguments,mlirstack-hoist-parameters{keep-narrow=true})' \
// RUN:   | FileCheck %s --check-prefixes=CHECK,NARROW

// The transposition of a parameter is done once, in @prepare; @main takes its result, and the parameter no longer.
// CHECK-LABEL: func.func @prepare(
// CHECK-SAME:    tensor<8x4xf32> {{{.*}}mlirstack.parameter
// CHECK:         linalg.transpose
// WIDE:          arith.extf
// CHECK-LABEL: func.func @main(
// CHECK-SAME:    %{{.*}}: tensor<2x4xf32> {{{.*}}}, %[[W:.*]]: tensor<4x8xf32> {{{.*}}mlirstack.prepared
// CHECK-NOT:     linalg.transpose
// CHECK:         linalg.matmul ins(%{{.*}}, %[[W]]
// What an elementwise op reads as f32 is made wider at load, or where it is read.
// NARROW:        arith.extf
// WIDE-NOT:      arith.extf
func.func @main(%x: tensor<2x4xf32>, %w: tensor<8x4xf32> {mlirstack.parameter = "w"}, %init: tensor<2x8xf32>,
                %b: tensor<8xbf16> {mlirstack.parameter = "b"}) -> tensor<2x8xf32> {
  %empty = tensor.empty() : tensor<4x8xf32>
  %t = linalg.transpose ins(%w : tensor<8x4xf32>) outs(%empty : tensor<4x8xf32>) permutation = [1, 0]
  %0 = linalg.matmul ins(%x, %t : tensor<2x4xf32>, tensor<4x8xf32>) outs(%init : tensor<2x8xf32>) -> tensor<2x8xf32>
  %row = tensor.empty() : tensor<8xf32>
  %wide = linalg.generic {indexing_maps = [affine_map<(c) -> (c)>, affine_map<(c) -> (c)>], iterator_types = ["parallel"]}
      ins(%b : tensor<8xbf16>) outs(%row : tensor<8xf32>) {
    ^bb0(%in: bf16, %out: f32):
      %e = arith.extf %in : bf16 to f32
      linalg.yield %e : f32
  } -> tensor<8xf32>
  %1 = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (c)>, affine_map<(r, c) -> (r, c)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%0, %wide : tensor<2x8xf32>, tensor<8xf32>) outs(%init : tensor<2x8xf32>) {
    ^bb0(%in: f32, %bias: f32, %out: f32):
      %sum = arith.addf %in, %bias : f32
      linalg.yield %sum : f32
  } -> tensor<2x8xf32>
  return %1 : tensor<2x8xf32>
}
