// RUN: mlirstack-opt %s --mlirstack-mark-divisors | FileCheck %s

// What stands at the place of its products divides; of the model's own reciprocals nothing is said.
// CHECK-LABEL: func.func @reciprocals(
// CHECK:         tosa.reciprocal %{{.*}} {mlirstack.divisor} : (tensor<3x1xf32>)
// CHECK:         tosa.reciprocal %{{.*}} : (tensor<3x4xf32>)
// CHECK:         tosa.reciprocal %{{.*}} : (tensor<3x4xf32>)
func.func @reciprocals(%x: tensor<3x4xf32>, %y: tensor<3x1xf32>) -> (tensor<3x4xf32>, tensor<3x4xf32>) {
  %shift = "tosa.const"() {values = dense<0> : tensor<1xi8>} : () -> tensor<1xi8>
  %0 = tosa.reciprocal %y : (tensor<3x1xf32>) -> tensor<3x1xf32> loc("model.py":1:1)
  %1 = tosa.mul %x, %0, %shift : (tensor<3x4xf32>, tensor<3x1xf32>, tensor<1xi8>) -> tensor<3x4xf32> loc("model.py":1:1)
  %2 = tosa.reciprocal %1 : (tensor<3x4xf32>) -> tensor<3x4xf32> loc("model.py":2:1)
  %3 = tosa.mul %x, %2, %shift : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<1xi8>) -> tensor<3x4xf32> loc("model.py":3:1)
  %4 = tosa.reciprocal %3 : (tensor<3x4xf32>) -> tensor<3x4xf32> loc("model.py":4:1)
  return %3, %4 : tensor<3x4xf32>, tensor<3x4xf32>
}
