// What treats two new axes alike works on the one axis that they were; what does not keeps both.
// RUN: mlirstack-opt %s --mlirstack-sink-expansions --canonicalize | FileCheck %s

// CHECK-LABEL: func.func @residual(
// CHECK-SAME:    %[[Y:.*]]: tensor<32x8xf32>, %[[X:.*]]: tensor<2x16x8xf32>, %[[BIAS:.*]]: tensor<8xf32>)
// CHECK:         %[[ROWS:.*]] = tensor.collapse_shape %[[X]] {{\[\[}}0, 1], [2]] : tensor<2x16x8xf32> into tensor<32x8xf32>
// CHECK:         %[[SUM:.*]] = linalg.generic {{.*}} ins(%[[Y]], %[[ROWS]], %[[BIAS]] : tensor<32x8xf32>, tensor<32x8xf32>, tensor<8xf32>)
// CHECK:         tensor.expand_shape %[[SUM]] {{\[\[}}0, 1], [2]] output_shape [2, 16, 8]
#full = affine_map<(b, s, d) -> (b, s, d)>
#last = affine_map<(b, s, d) -> (d)>
#position = affine_map<(b, s, d) -> (s, d)>
func.func @residual(%y: tensor<32x8xf32>, %x: tensor<2x16x8xf32>, %bias: tensor<8xf32>) -> tensor<2x16x8xf32> {
  %expanded = tensor.expand_shape %y [[0, 1], [2]] output_shape [2, 16, 8] : tensor<32x8xf32> into tensor<2x16x8xf32>
  %empty = tensor.empty() : tensor<2x16x8xf32>
  %0 = linalg.generic {indexing_maps = [#full, #full, #last, #full], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%expanded, %x, %bias : tensor<2x16x8xf32>, tensor<2x16x8xf32>, tensor<8xf32>) outs(%empty : tensor<2x16x8xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %o: f32):
    %1 = arith.addf %a, %b : f32
    %2 = arith.addf %1, %c : f32
    linalg.yield %2 : f32
  } -> tensor<2x16x8xf32>
  return %0 : tensor<2x16x8xf32>
}

// CHECK-LABEL: func.func @positions(
// CHECK:         tensor.expand_shape
// CHECK:         linalg.generic {{.*}}["parallel", "parallel", "parallel"]
// CHECK-NOT:     tensor.expand_shape
func.func @positions(%y: tensor<32x8xf32>, %p: tensor<16x8xf32>) -> tensor<2x16x8xf32> {
  %expanded = tensor.expand_shape %y [[0, 1], [2]] output_shape [2, 16, 8] : tensor<32x8xf32> into tensor<2x16x8xf32>
  %empty = tensor.empty() : tensor<2x16x8xf32>
  %0 = linalg.generic {indexing_maps = [#full, #position, #full], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%expanded, %p : tensor<2x16x8xf32>, tensor<16x8xf32>) outs(%empty : tensor<2x16x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %1 = arith.addf %a, %b : f32
    linalg.yield %1 : f32
  } -> tensor<2x16x8xf32>
  return %0 : tensor<2x16x8xf32>
}

// CHECK-LABEL: func.func @sums_of_rows(
// CHECK:         %[[SUMS:.*]] = linalg.generic {{.*}}["parallel", "reduction"]} ins(%{{.*}} : tensor<32x8xf32>)
// CHECK:         tensor.expand_shape %[[SUMS]] {{\[\[}}0, 1]] output_shape [2, 16]
func.func @sums_of_rows(%y: tensor<32x8xf32>, %init: tensor<2x16xf32>) -> tensor<2x16xf32> {
  %expanded = tensor.expand_shape %y [[0, 1], [2]] output_shape [2, 16, 8] : tensor<32x8xf32> into tensor<2x16x8xf32>
  %0 = linalg.generic {indexing_maps = [#full, affine_map<(b, s, d) -> (b, s)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%expanded : tensor<2x16x8xf32>) outs(%init : tensor<2x16xf32>) {
  ^bb0(%a: f32, %o: f32):
    %1 = arith.addf %a, %o : f32
    linalg.yield %1 : f32
  } -> tensor<2x16xf32>
  return %0 : tensor<2x16xf32>
}

// A layer's bias is added before heads are moved apart, and then by the kernel of the layer.
// CHECK-LABEL: func.func @heads(
// CHECK:         %[[PRODUCT:.*]] = linalg.generic {{.*}}["parallel", "parallel", "reduction"]
// CHECK:         %[[ADDED:.*]] = linalg.generic {{.*}} ins(%[[PRODUCT]], %{{.*}} : tensor<32x24xf32>, tensor<24xf32>)
// CHECK:         arith.addf
// CHECK:         %[[APART:.*]] = tensor.expand_shape %[[ADDED]] {{.*}} output_shape [32, 3, 8]
// CHECK:         linalg.generic {{.*}} ins(%[[APART]] : tensor<32x3x8xf32>) outs(%{{.*}} : tensor<3x32x8xf32>)
// CHECK-NOT:     arith.addf
// CHECK:         return
func.func @heads(%x: tensor<32x8xf32>, %w: tensor<24x8xf32>, %bias: tensor<24xf32>, %zeros: tensor<32x24xf32>) -> tensor<3x2x16x8xf32> {
  %y = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<32x8xf32>, tensor<24x8xf32>) outs(%zeros : tensor<32x24xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %1 = arith.mulf %a, %b : f32
    %2 = arith.addf %o, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<32x24xf32>
  %expanded = tensor.expand_shape %y [[0, 1], [2, 3]] output_shape [2, 16, 3, 8] : tensor<32x24xf32> into tensor<2x16x3x8xf32>
  %biases = tensor.expand_shape %bias [[0, 1]] output_shape [3, 8] : tensor<24xf32> into tensor<3x8xf32>
  %empty = tensor.empty() : tensor<3x2x16x8xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(n, b, s, d) -> (b, s, n, d)>, affine_map<(n, b, s, d) -> (n, d)>,
      affine_map<(n, b, s, d) -> (n, b, s, d)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%expanded, %biases : tensor<2x16x3x8xf32>, tensor<3x8xf32>) outs(%empty : tensor<3x2x16x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %1 = arith.addf %a, %b : f32
    linalg.yield %1 : f32
  } -> tensor<3x2x16x8xf32>
  return %0 : tensor<3x2x16x8xf32>
}
