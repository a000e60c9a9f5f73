// A flag that chooses between tensors chooses between their elements; one flag for each element stays.
// RUN: mlirstack-opt %s --mlirstack-settle-selects | FileCheck %s

// CHECK-LABEL: func.func @whole
// CHECK-SAME: (%[[FLAG:.*]]: i1, %[[A:.*]]: tensor<?x3xf32>, %[[B:.*]]: tensor<?x3xf32>)
// CHECK: %[[SIZE:.*]] = tensor.dim %[[A]]
// CHECK: %[[EMPTY:.*]] = tensor.empty(%[[SIZE]]) : tensor<?x3xf32>
// CHECK: linalg.generic {{.*}} ins(%[[A]], %[[B]] : {{.*}}) outs(%[[EMPTY]] : tensor<?x3xf32>)
// CHECK: ^bb0(%[[X:.*]]: f32, %[[Y:.*]]: f32, %{{.*}}: f32):
// CHECK: arith.select %[[FLAG]], %[[X]], %[[Y]] : f32
func.func @whole(%flag: i1, %a: tensor<?x3xf32>, %b: tensor<?x3xf32>) -> tensor<?x3xf32> {
  %0 = arith.select %flag, %a, %b : tensor<?x3xf32>
  return %0 : tensor<?x3xf32>
}

// CHECK-LABEL: func.func @each
// CHECK-NOT: linalg.generic
// CHECK: arith.select %{{.*}} : tensor<3xi1>, tensor<3xf32>
func.func @each(%flag: tensor<3xi1>, %a: tensor<3xf32>, %b: tensor<3xf32>) -> tensor<3xf32> {
  %0 = arith.select %flag, %a, %b : tensor<3xi1>, tensor<3xf32>
  return %0 : tensor<3xf32>
}
