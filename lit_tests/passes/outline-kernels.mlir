// RUN: mlirstack-opt %s --mlirstack-outline-kernels | FileCheck %s

// CHECK-LABEL: func.func private @kernel_{{[a-z]+}}_0(
// CHECK-SAME:    %{{.*}}: tensor<4x4xf32>, %[[OUT:.*]]: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {{{.*}}mlirstack.kernel
// CHECK:         linalg.generic {{.*}} outs(%[[OUT]]
// CHECK-LABEL: func.func @main(
// CHECK:         %[[EMPTY:.*]] = tensor.empty()
// CHECK:         call @kernel_{{[a-z]+}}_0(%{{.*}}, %[[EMPTY]])
#map = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %empty = tensor.empty() : tensor<4x4xf32>
  %0 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x4xf32>) outs(%empty : tensor<4x4xf32>) {
  ^bb0(%a: f32, %out: f32):
    %1 = arith.addf %a, %a : f32
    linalg.yield %1 : f32
  } -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
