// RUN: mlirstack-opt %s --split-input-file --mlirstack-round-sums-once | FileCheck %s

#all = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>

// CHECK-LABEL: func.func @linear(
// CHECK-SAME:    %[[X:.*]]: tensor<3x4xbf16>, %[[W:.*]]: tensor<4x5xbf16>, %[[B:.*]]: tensor<5xbf16>
// CHECK:         %[[PRODUCT:.*]] = linalg.matmul
// CHECK-NOT:     arith.truncf
// CHECK:         linalg.generic {{.*}} ins(%[[PRODUCT]], %[[B]] : tensor<3x5xf32>, tensor<5xbf16>)
// CHECK:           ^bb0(%[[P:.*]]: f32, %[[BIAS:.*]]: bf16, %{{.*}}: bf16):
// CHECK:           %[[WIDE:.*]] = arith.extf %[[BIAS]] : bf16 to f32
// CHECK:           %[[SUM:.*]] = arith.addf %[[P]], %[[WIDE]] : f32
// CHECK:           arith.truncf %[[SUM]] : f32 to bf16
func.func @linear(%x: tensor<3x4xbf16>, %w: tensor<4x5xbf16>, %b: tensor<5xbf16>) -> tensor<3x5xbf16> {
  %zero = arith.constant 0.0 : f32
  %wide = tensor.empty() : tensor<3x5xf32>
  %start = linalg.fill ins(%zero : f32) outs(%wide : tensor<3x5xf32>) -> tensor<3x5xf32>
  %product = linalg.matmul ins(%x, %w : tensor<3x4xbf16>, tensor<4x5xbf16>) outs(%start : tensor<3x5xf32>) -> tensor<3x5xf32>
  %empty = tensor.empty() : tensor<3x5xbf16>
  %rounded = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%product : tensor<3x5xf32>) outs(%empty : tensor<3x5xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = arith.truncf %in : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<3x5xbf16>
  %sum = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]}
      ins(%rounded, %b : tensor<3x5xbf16>, tensor<5xbf16>) outs(%empty : tensor<3x5xbf16>) {
  ^bb0(%in: bf16, %in_0: bf16, %out: bf16):
    %0 = arith.addf %in, %in_0 : bf16
    linalg.yield %0 : bf16
  } -> tensor<3x5xbf16>
  return %sum : tensor<3x5xbf16>
}

// -----

// What is rounded otherwise stays: here the model's own rounding, of no product.
#all = affine_map<(d0) -> (d0)>
// CHECK-LABEL: func.func @own_rounding(
// CHECK:         arith.truncf
// CHECK:         arith.addf %{{.*}}, %{{.*}} : f16
func.func @own_rounding(%x: tensor<5xf32>, %b: tensor<5xf16>) -> tensor<5xf16> {
  %empty = tensor.empty() : tensor<5xf16>
  %rounded = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel"]}
      ins(%x : tensor<5xf32>) outs(%empty : tensor<5xf16>) {
  ^bb0(%in: f32, %out: f16):
    %0 = arith.truncf %in : f32 to f16
    linalg.yield %0 : f16
  } -> tensor<5xf16>
  %sum = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel"]}
      ins(%b, %rounded : tensor<5xf16>, tensor<5xf16>) outs(%empty : tensor<5xf16>) {
  ^bb0(%in: f16, %in_0: f16, %out: f16):
    %0 = arith.addf %in, %in_0 : f16
    linalg.yield %0 : f16
  } -> tensor<5xf16>
  return %sum : tensor<5xf16>
}
