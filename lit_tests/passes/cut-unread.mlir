// RUN: mlirstack-opt %s --mlirstack-cut-unread | FileCheck %s

// A window at one position, of 3 of 4 rows: the fourth row is not read.  Columns are read by many positions.
// CHECK-LABEL:   func.func @one_position(
// CHECK-SAME:        %[[IMAGE:.+]]: tensor<4x9xf32>
// CHECK:           %[[READ:.+]] = tensor.extract_slice %[[IMAGE]][0, 0] [3, 9] [1, 1] : tensor<4x9xf32> to tensor<3x9xf32>
// CHECK:           linalg.generic
// CHECK-SAME:        ins(%[[READ]], %{{.+}} : tensor<3x9xf32>, tensor<3x2xf32>)
#image = affine_map<(d0, d1, d2, d3) -> (d0 * 3 + d2, d1 * 2 + d3)>
#window = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
#result = affine_map<(d0, d1, d2, d3) -> (d0, d1)>
func.func @one_position(%image: tensor<4x9xf32>, %window: tensor<3x2xf32>, %init: tensor<1x4xf32>) -> tensor<1x4xf32> {
  %0 = linalg.generic {indexing_maps = [#image, #window, #result],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%image, %window : tensor<4x9xf32>, tensor<3x2xf32>) outs(%init : tensor<1x4xf32>) {
  ^bb0(%x: f32, %w: f32, %sum: f32):
    %product = arith.mulf %x, %w : f32
    %next = arith.addf %sum, %product : f32
    linalg.yield %next : f32
  } -> tensor<1x4xf32>
  return %0 : tensor<1x4xf32>
}

// Several positions: nothing is told from the image, which stays whole.
// CHECK-LABEL:   func.func @many_positions(
// CHECK-NOT:       tensor.extract_slice
// CHECK:           return
func.func @many_positions(%image: tensor<8x9xf32>, %window: tensor<3x2xf32>, %init: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = linalg.generic {indexing_maps = [#image, #window, #result],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%image, %window : tensor<8x9xf32>, tensor<3x2xf32>) outs(%init : tensor<2x4xf32>) {
  ^bb0(%x: f32, %w: f32, %sum: f32):
    %product = arith.mulf %x, %w : f32
    %next = arith.addf %sum, %product : f32
    linalg.yield %next : f32
  } -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
