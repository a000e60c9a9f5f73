// RUN: mlirstack-opt %s --mlirstack-pin-broadcasts | FileCheck %s
// RUN: mlirstack-opt %s --mlirstack-pin-broadcasts --mlirstack-pin-broadcasts='remove=true' | FileCheck %s --check-prefix=REMOVED

// The square root of each row is used by all its elements: fused into them it would be computed eight times.
// CHECK-LABEL: func.func @main(
// CHECK:         %[[ROOT:.*]] = linalg.generic
// CHECK:           math.sqrt
// CHECK:         call @mlirstack_pin{{.*}}(%[[ROOT]])
// REMOVED-NOT: mlirstack_pin
#all = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#one = affine_map<(d0) -> (d0)>
func.func @main(%x: tensor<4x8xf32>, %s: tensor<4xf32>) -> tensor<4x8xf32> {
  %e1 = tensor.empty() : tensor<4xf32>
  %e2 = tensor.empty() : tensor<4x8xf32>
  %root = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]} ins(%s : tensor<4xf32>) outs(%e1 : tensor<4xf32>) {
  ^bb0(%a: f32, %out: f32):
    %1 = math.sqrt %a : f32
    linalg.yield %1 : f32
  } -> tensor<4xf32>
  %0 = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %root : tensor<4x8xf32>, tensor<4xf32>) outs(%e2 : tensor<4x8xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %1 = arith.mulf %a, %b : f32
    linalg.yield %1 : f32
  } -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
