// Products of 16-bit numbers read them as f32, by casts that IREE does not put back into the product.
// RUN: mlirstack-opt %s --mlirstack-iree-widen-factors | FileCheck %s
// RUN: mlirstack-opt %s --mlirstack-iree-widen-factors="elements=f16" | FileCheck %s --check-prefix=F16

// CHECK:       #[[BACKWARDS:.*]] = affine_map<(d0, d1, d2) -> (d2, d1, d0)>
// CHECK-LABEL: func.func @product(
// CHECK-SAME:    %[[A:.*]]: tensor<2x?x8xbf16>, %[[B:.*]]: tensor<2x8x16xbf16>
// CHECK:         %[[WIDE_A:.*]] = linalg.generic {indexing_maps = [#[[BACKWARDS]], #[[BACKWARDS]]]{{.*}} ins(%[[A]] : tensor<2x?x8xbf16>) outs(%{{.*}} : tensor<2x?x8xf32>)
// CHECK:           arith.extf
// CHECK:         %[[WIDE_B:.*]] = linalg.generic {{.*}} ins(%[[B]] : tensor<2x8x16xbf16>)
// CHECK:         linalg.batch_matmul ins(%[[WIDE_A]], %[[WIDE_B]] : tensor<2x?x8xf32>, tensor<2x8x16xf32>)
// F16-LABEL:   func.func @product(
// F16:           linalg.batch_matmul ins(%{{.*}}, %{{.*}} : tensor<2x?x8xbf16>, tensor<2x8x16xbf16>)
func.func @product(%a: tensor<2x?x8xbf16>, %b: tensor<2x8x16xbf16>, %sums: tensor<2x?x16xf32>) -> tensor<2x?x16xf32> {
  %0 = linalg.batch_matmul ins(%a, %b : tensor<2x?x8xbf16>, tensor<2x8x16xbf16>) outs(%sums : tensor<2x?x16xf32>) -> tensor<2x?x16xf32>
  return %0 : tensor<2x?x16xf32>
}

// A factor of a product may be a vector, and both may be the same.
// CHECK-LABEL: func.func @vectors(
// CHECK:         linalg.matvec ins(%{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<8xf32>)
// CHECK:         linalg.dot ins(%{{.*}}, %{{.*}} : tensor<8xf32>, tensor<8xf32>)
func.func @vectors(%a: tensor<4x8xf16>, %x: tensor<8xf16>, %y: tensor<4xf32>, %z: tensor<f32>) -> (tensor<4xf32>, tensor<f32>) {
  %0 = linalg.matvec ins(%a, %x : tensor<4x8xf16>, tensor<8xf16>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  %1 = linalg.dot ins(%x, %x : tensor<8xf16>, tensor<8xf16>) outs(%z : tensor<f32>) -> tensor<f32>
  return %0, %1 : tensor<4xf32>, tensor<f32>
}

// Sums in 16 bits, and products of f32, stay as they are.
// CHECK-LABEL: func.func @others(
// CHECK-NOT:     arith.extf
// CHECK:         linalg.matmul ins(%{{.*}} : tensor<4x8xbf16>, tensor<8x2xbf16>) outs(%{{.*}} : tensor<4x2xbf16>)
// CHECK-NOT:     arith.extf
// CHECK:         linalg.matmul ins(%{{.*}} : tensor<4x8xf32>, tensor<8x2xf32>)
func.func @others(%a: tensor<4x8xbf16>, %b: tensor<8x2xbf16>, %c: tensor<4x2xbf16>, %d: tensor<4x8xf32>, %e: tensor<8x2xf32>, %f: tensor<4x2xf32>) -> (tensor<4x2xbf16>, tensor<4x2xf32>) {
  %0 = linalg.matmul ins(%a, %b : tensor<4x8xbf16>, tensor<8x2xbf16>) outs(%c : tensor<4x2xbf16>) -> tensor<4x2xbf16>
  %1 = linalg.matmul ins(%d, %e : tensor<4x8xf32>, tensor<8x2xf32>) outs(%f : tensor<4x2xf32>) -> tensor<4x2xf32>
  return %0, %1 : tensor<4x2xbf16>, tensor<4x2xf32>
}
