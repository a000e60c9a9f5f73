// RUN: mlirstack-opt %s --mlirstack-lower-quotients | FileCheck %s

// CHECK-LABEL: func.func @quotients(
// CHECK-SAME:    %[[X:.*]]: tensor<3x4xf32>, %[[Y:.*]]: tensor<3x4xf32>
// CHECK-NOT:     tosa.reciprocal
// CHECK:         %[[Q:.*]] = arith.divf %[[X]], %[[Y]] : tensor<3x4xf32>
// CHECK:         %[[NUMBER:.*]] = arith.constant dense<1.500000e+00> : tensor<3x4xf32>
// CHECK:         arith.divf %[[NUMBER]], %[[Q]] : tensor<3x4xf32>
// CHECK-NOT:     tosa.mul
func.func @quotients(%x: tensor<3x4xf32>, %y: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %shift = "tosa.const"() {values = dense<0> : tensor<1xi8>} : () -> tensor<1xi8>
  %number = "tosa.const"() {values = dense<1.5> : tensor<1x1xf32>} : () -> tensor<1x1xf32>
  %0 = tosa.reciprocal %y : (tensor<3x4xf32>) -> tensor<3x4xf32> loc("model.py":1:1)
  %1 = tosa.mul %x, %0, %shift : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<1xi8>) -> tensor<3x4xf32> loc("model.py":1:1)
  %2 = tosa.reciprocal %1 : (tensor<3x4xf32>) -> tensor<3x4xf32> loc("model.py":2:1)
  %3 = tosa.mul %number, %2, %shift : (tensor<1x1xf32>, tensor<3x4xf32>, tensor<1xi8>) -> tensor<3x4xf32> loc("model.py":2:1)
  return %3 : tensor<3x4xf32>
}

// A product with a reciprocal of the model's own, and with one that is stretched, stay.
// CHECK-LABEL: func.func @products(
// CHECK-COUNT-2: tosa.mul
// CHECK-NOT:     arith.divf
func.func @products(%x: tensor<3x4xf32>, %y: tensor<3x4xf32>, %z: tensor<3x1xf32>) -> tensor<3x4xf32> {
  %shift = "tosa.const"() {values = dense<0> : tensor<1xi8>} : () -> tensor<1xi8>
  %0 = tosa.reciprocal %y : (tensor<3x4xf32>) -> tensor<3x4xf32> loc("model.py":1:1)
  %1 = tosa.mul %x, %0, %shift : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<1xi8>) -> tensor<3x4xf32> loc("model.py":2:1)
  %2 = tosa.reciprocal %z : (tensor<3x1xf32>) -> tensor<3x1xf32> loc("model.py":3:1)
  %3 = tosa.mul %1, %2, %shift : (tensor<3x4xf32>, tensor<3x1xf32>, tensor<1xi8>) -> tensor<3x4xf32> loc("model.py":3:1)
  return %3 : tensor<3x4xf32>
}
