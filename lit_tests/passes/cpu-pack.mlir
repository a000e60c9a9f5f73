// RUN: mlirstack-opt %s --mlirstack-cpu-pack='vector-bits=256' | FileCheck %s

// The right-hand side is a parameter: it is laid out in panels as wide as the registers, once.
// CHECK-LABEL: func.func @main(
// CHECK-SAME:    %{{.*}}: tensor<64x64xf32>, %[[W:.*]]: tensor<64x64xf32>
// CHECK:         tensor<{{[0-9]+}}x64x{{8|16|32}}xf32>
func.func @main(%x: tensor<64x64xf32>, %w: tensor<64x64xf32> {mlirstack.parameter = "w"}) -> tensor<64x64xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<64x64xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x64xf32>) -> tensor<64x64xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<64x64xf32>, tensor<64x64xf32>) outs(%init : tensor<64x64xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %1 = arith.mulf %a, %b : f32
    %2 = arith.addf %c, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<64x64xf32>
  return %0 : tensor<64x64xf32>
}
