// RUN: mlirstack-opt %s --mlirstack-generalize-named | FileCheck %s
// RUN: mlirstack-opt %s --mlirstack-generalize-named='windows=true' | FileCheck %s --check-prefix=WINDOWS

// CHECK-LABEL:   func.func @main(
// CHECK:         linalg.fill
// CHECK:         linalg.generic
// CHECK:           math.exp
// CHECK:         linalg.matmul
// WINDOWS-LABEL: func.func @main(
// WINDOWS:         linalg.fill
// WINDOWS-NOT:     linalg.matmul
func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<4x4xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<4x4xf32>) -> tensor<4x4xf32>
  %exp = linalg.exp ins(%x : tensor<4x4xf32>) outs(%empty : tensor<4x4xf32>) -> tensor<4x4xf32>
  %0 = linalg.matmul ins(%exp, %x : tensor<4x4xf32>, tensor<4x4xf32>) outs(%init : tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
