// RUN: mlirstack-opt %s --split-input-file --mlirstack-outline-kernels | FileCheck %s

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

// -----

// What @prepare computes is kernels as well.  A slice whose dimensions are split is taken inside of the kernel: it would be
// copied on the way in.
// CHECK-LABEL: func.func private @kernel_elementwise_1(%{{.*}}: tensor<4x4xf32>, %{{.*}}: tensor<4x4xf32>)
// CHECK:         arith.negf
// CHECK-LABEL: func.func @prepare(
// CHECK:         call @kernel_elementwise_1(
// CHECK-LABEL: func.func private @kernel_elementwise_0(
// CHECK-SAME:    %[[ALL:[^:]*]]: tensor<4x8xf32>, %{{.*}}: tensor<4x2x2xf32>)
// CHECK:         %[[SLICE:.*]] = tensor.extract_slice %[[ALL]][0, 4] [4, 4] [1, 1]
// CHECK:         tensor.expand_shape %[[SLICE]]
// CHECK-LABEL: func.func @main(
// CHECK-NOT:     tensor.extract_slice
// CHECK-NOT:     tensor.expand_shape
// CHECK:         call @kernel_elementwise_0(
#map = affine_map<(d0, d1) -> (d0, d1)>
#cube = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
func.func @prepare(%w: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %empty = tensor.empty() : tensor<4x4xf32>
  %0 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<4x4xf32>) outs(%empty : tensor<4x4xf32>) {
  ^bb0(%a: f32, %out: f32):
    %1 = arith.negf %a : f32
    linalg.yield %1 : f32
  } -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x2x2xf32> {
  %slice = tensor.extract_slice %x[0, 4] [4, 4] [1, 1] : tensor<4x8xf32> to tensor<4x4xf32>
  %split = tensor.expand_shape %slice [[0], [1, 2]] output_shape [4, 2, 2] : tensor<4x4xf32> into tensor<4x2x2xf32>
  %empty = tensor.empty() : tensor<4x2x2xf32>
  %0 = linalg.generic {indexing_maps = [#cube, #cube], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%split : tensor<4x2x2xf32>) outs(%empty : tensor<4x2x2xf32>) {
  ^bb0(%a: f32, %out: f32):
    %1 = arith.addf %a, %a : f32
    linalg.yield %1 : f32
  } -> tensor<4x2x2xf32>
  return %0 : tensor<4x2x2xf32>
}
