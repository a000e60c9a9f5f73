// RUN: mlirstack-opt %s --mlirstack-simplify-linalg | FileCheck %s

// A maximum starts from minus infinity, so that a row of -inf stays -inf.
// CHECK-LABEL: func.func @main(
// CHECK:         %[[LOWEST:.*]] = arith.constant 0xFF800000 : f32
// CHECK:         linalg.fill ins(%[[LOWEST]]
// CHECK:         linalg.reduce
func.func @main(%x: tensor<4x8xf32>) -> tensor<4xf32> {
  %lowest = arith.constant -3.40282347E+38 : f32
  %empty = tensor.empty() : tensor<4xf32>
  %init = linalg.fill ins(%lowest : f32) outs(%empty : tensor<4xf32>) -> tensor<4xf32>
  %0 = linalg.reduce ins(%x : tensor<4x8xf32>) outs(%init : tensor<4xf32>) dimensions = [1]
    (%a: f32, %m: f32) {
      %1 = arith.maximumf %a, %m : f32
      linalg.yield %1 : f32
    }
  return %0 : tensor<4xf32>
}

// The size that torch infers is that of the group through its other sizes.
// CHECK-LABEL: func.func @inferred(
// CHECK-SAME:    %[[X:.*]]: tensor<?xf32>
// CHECK:         %[[SIZE:.*]] = tensor.dim %[[X]]
// CHECK:         %[[ROWS:.*]] = arith.divsi %[[SIZE]]
// CHECK:         tensor.expand_shape %[[X]] {{.*}} output_shape [%[[ROWS]], 6]
func.func @inferred(%x: tensor<?xf32>) -> tensor<?x6xf32> {
  %inferred = arith.constant -1 : index
  %0 = tensor.expand_shape %x [[0, 1]] output_shape [%inferred, 6] : tensor<?xf32> into tensor<?x6xf32>
  return %0 : tensor<?x6xf32>
}
