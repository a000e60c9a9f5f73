// RUN: mlirstack-opt %s --split-input-file --mlirstack-lower-quotients | FileCheck %s

// CHECK-LABEL: func.func @quotients(
// CHECK-SAME:    %[[X:.*]]: tensor<3x4xf32>, %[[Y:.*]]: tensor<3x4xf32>
// CHECK-NOT:     tosa.reciprocal
// CHECK:         %[[Q:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[Y]] :
// CHECK:         ^bb0(%[[A:.*]]: f32, %[[B:.*]]: f32, %{{.*}}: f32):
// CHECK:           arith.divf %[[A]], %[[B]] : f32
// CHECK:         linalg.generic {{.*}} ins(%{{.*}}, %[[Q]] : tensor<1x1xf32>, tensor<3x4xf32>)
// CHECK:           arith.divf
// CHECK-NOT:     tosa.mul
func.func @quotients(%x: tensor<3x4xf32>, %y: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %shift = "tosa.const"() {values = dense<0> : tensor<1xi8>} : () -> tensor<1xi8>
  %number = "tosa.const"() {values = dense<1.5> : tensor<1x1xf32>} : () -> tensor<1x1xf32>
  %0 = tosa.reciprocal %y {mlirstack.divisor} : (tensor<3x4xf32>) -> tensor<3x4xf32> loc("model.py":1:1)
  %1 = tosa.mul %x, %0, %shift : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<1xi8>) -> tensor<3x4xf32> loc("model.py":1:1)
  %2 = tosa.reciprocal %1 {mlirstack.divisor} : (tensor<3x4xf32>) -> tensor<3x4xf32> loc("model.py":2:1)
  %3 = tosa.mul %number, %2, %shift : (tensor<1x1xf32>, tensor<3x4xf32>, tensor<1xi8>) -> tensor<3x4xf32> loc("model.py":2:1)
  return %3 : tensor<3x4xf32>
}

// -----

// A divisor that is stretched is read where it is; sizes known in a call only are those of the operand that has them.
// CHECK-DAG:   #[[ROWS:.*]] = affine_map<(d0, d1) -> (d0, 0)>
// CHECK-DAG:   #[[ALL:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-LABEL: func.func @stretched(
// CHECK-SAME:    %[[X:.*]]: tensor<?x4xf32>, %[[Y:.*]]: tensor<?x1xf32>
// CHECK:         %[[SIZE:.*]] = tensor.dim %[[X]], %{{.*}} : tensor<?x4xf32>
// CHECK:         tensor.empty(%[[SIZE]]) : tensor<?x4xf32>
// CHECK:         linalg.generic {indexing_maps = [#[[ALL]], #[[ROWS]], #[[ALL]]]
// CHECK:           arith.divf
func.func @stretched(%x: tensor<?x4xf32>, %y: tensor<?x1xf32>) -> tensor<?x4xf32> {
  %shift = "tosa.const"() {values = dense<0> : tensor<1xi8>} : () -> tensor<1xi8>
  %0 = tosa.reciprocal %y {mlirstack.divisor} : (tensor<?x1xf32>) -> tensor<?x1xf32> loc("model.py":1:1)
  %1 = tosa.mul %x, %0, %shift : (tensor<?x4xf32>, tensor<?x1xf32>, tensor<1xi8>) -> tensor<?x4xf32> loc("model.py":1:1)
  return %1 : tensor<?x4xf32>
}

// -----

// A product with a reciprocal of the model's own stays, and so does that with the sum of a softmax.
// CHECK-LABEL: func.func @products(
// CHECK-COUNT-2: tosa.mul
// CHECK-NOT:     arith.divf
func.func @products(%x: tensor<3x4xf32>, %y: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %shift = "tosa.const"() {values = dense<0> : tensor<1xi8>} : () -> tensor<1xi8>
  %0 = tosa.reciprocal %y : (tensor<3x4xf32>) -> tensor<3x4xf32> loc("model.py":1:1)
  %1 = tosa.mul %x, %0, %shift : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<1xi8>) -> tensor<3x4xf32> loc("model.py":2:1)
  %2 = tosa.exp %1 : (tensor<3x4xf32>) -> tensor<3x4xf32> loc("model.py":3:1)
  %3 = tosa.reduce_sum %2 {axis = 1 : i32} : (tensor<3x4xf32>) -> tensor<3x1xf32> loc("model.py":3:1)
  %4 = tosa.reciprocal %3 {mlirstack.divisor} : (tensor<3x1xf32>) -> tensor<3x1xf32> loc("model.py":3:1)
  %5 = tosa.mul %2, %4, %shift : (tensor<3x4xf32>, tensor<3x1xf32>, tensor<1xi8>) -> tensor<3x4xf32> loc("model.py":3:1)
  return %5 : tensor<3x4xf32>
}
