// A weight that is transposed and then put into panels is read once and written once; what @main does stays as it is.
// RUN: mlirstack-opt %s --mlirstack-fuse-prepared | FileCheck %s

// CHECK:       #[[READ:.*]] = affine_map<(d0, d1, d2) -> (d0, d2, d1)>
// CHECK-LABEL: func.func @prepare(%{{.*}}: tensor<8x4xf32>
// CHECK:         tensor.expand_shape
// CHECK:         linalg.generic {indexing_maps = [#[[READ]],
// CHECK-NOT:     linalg.generic
// CHECK:         return
// CHECK-LABEL: func.func @main(
// CHECK-COUNT-2: linalg.generic
#rows = affine_map<(d0, d1) -> (d0, d1)>
#columns = affine_map<(d0, d1) -> (d1, d0)>
#panels = affine_map<(d0, d1, d2) -> (d1, d0, d2)>
#plain = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
func.func @prepare(%w: tensor<8x4xf32>) -> tensor<2x4x4xf32> {
  %0 = tensor.empty() : tensor<4x8xf32>
  %t = linalg.generic {indexing_maps = [#columns, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<8x4xf32>) outs(%0 : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<4x8xf32>
  %split = tensor.expand_shape %t [[0], [1, 2]] output_shape [4, 2, 4] : tensor<4x8xf32> into tensor<4x2x4xf32>
  %1 = tensor.empty() : tensor<2x4x4xf32>
  %packed = linalg.generic {indexing_maps = [#panels, #plain], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%split : tensor<4x2x4xf32>) outs(%1 : tensor<2x4x4xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<2x4x4xf32>
  return %packed : tensor<2x4x4xf32>
}
func.func @main(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = tensor.empty() : tensor<8x4xf32>
  %1 = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x4xf32>) outs(%0 : tensor<8x4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %2 = arith.negf %in : f32
    linalg.yield %2 : f32
  } -> tensor<8x4xf32>
  %3 = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%1 : tensor<8x4xf32>) outs(%0 : tensor<8x4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %2 = math.absf %in : f32
    linalg.yield %2 : f32
  } -> tensor<8x4xf32>
  return %3 : tensor<8x4xf32>
}
