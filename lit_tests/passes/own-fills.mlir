// Two sums that start from one fill get one each.
// RUN: mlirstack-opt %s --mlirstack-own-fills | FileCheck %s

// CHECK-LABEL: func.func @main(
// CHECK:         %[[A:.*]] = linalg.fill
// CHECK:         %[[B:.*]] = linalg.fill
// CHECK:         linalg.reduce { arith.addf } {{.*}}outs(%[[B]] :
// CHECK:         linalg.reduce { arith.maximumf } {{.*}}outs(%[[A]] :
func.func @main(%x: tensor<4x8xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<4xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<4xf32>) -> tensor<4xf32>
  %0 = linalg.reduce {arith.addf} ins(%x : tensor<4x8xf32>) outs(%init : tensor<4xf32>) dimensions = [1]
  %1 = linalg.reduce {arith.maximumf} ins(%x : tensor<4x8xf32>) outs(%init : tensor<4xf32>) dimensions = [1]
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}
