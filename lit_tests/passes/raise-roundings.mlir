// RUN: mlirstack-opt %s --mlirstack-raise-roundings | FileCheck %s

#row = affine_map<(m, n) -> (m, n)>

// Both readers round the product, one of them behind a reshape: it is rounded once, where it is made.
// CHECK-LABEL: func.func @repeated(
// CHECK:         %[[PRODUCT:.*]] = linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]
// CHECK:         %[[ROUNDED:.*]] = linalg.generic {{.*}} ins(%[[PRODUCT]] : tensor<4x8xf32>)
// CHECK:           arith.truncf
// CHECK:         %[[HEADS:.*]] = tensor.expand_shape %[[ROUNDED]]
// CHECK:         linalg.generic {{.*}} ins(%[[HEADS]] : tensor<4x2x4xbf16>)
// CHECK-NOT:       arith.truncf
// CHECK:         linalg.generic {{.*}} ins(%[[ROUNDED]]{{.*}} : tensor<4x8xbf16>
// CHECK-NOT:       arith.truncf
// CHECK:         return
func.func @repeated(%a: tensor<4x16xbf16>, %b: tensor<8x16xbf16>, %c: tensor<4x8xbf16>)
    -> (tensor<3x4x2x4xbf16>, tensor<4x8xbf16>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  %p = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<4x16xbf16>, tensor<8x16xbf16>) outs(%f : tensor<4x8xf32>) {
    ^bb0(%x: bf16, %y: bf16, %o: f32):
      %0 = arith.extf %x : bf16 to f32
      %1 = arith.extf %y : bf16 to f32
      %2 = arith.mulf %0, %1 : f32
      %3 = arith.addf %2, %o : f32
      linalg.yield %3 : f32
  } -> tensor<4x8xf32>
  %h = tensor.expand_shape %p [[0], [1, 2]] output_shape [4, 2, 4] : tensor<4x8xf32> into tensor<4x2x4xf32>
  %er = tensor.empty() : tensor<3x4x2x4xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(i, m, h, d) -> (m, h, d)>, affine_map<(i, m, h, d) -> (i, m, h, d)>],
                       iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%h : tensor<4x2x4xf32>) outs(%er : tensor<3x4x2x4xbf16>) {
    ^bb0(%x: f32, %o: bf16):
      %0 = arith.truncf %x : f32 to bf16
      linalg.yield %0 : bf16
  } -> tensor<3x4x2x4xbf16>
  %em = tensor.empty() : tensor<4x8xbf16>
  %m = linalg.generic {indexing_maps = [#row, #row, #row], iterator_types = ["parallel", "parallel"]}
      ins(%p, %c : tensor<4x8xf32>, tensor<4x8xbf16>) outs(%em : tensor<4x8xbf16>) {
    ^bb0(%x: f32, %y: bf16, %o: bf16):
      %0 = arith.truncf %x : f32 to bf16
      %1 = arith.mulf %0, %y : bf16
      linalg.yield %1 : bf16
  } -> tensor<4x8xbf16>
  return %r, %m : tensor<3x4x2x4xbf16>, tensor<4x8xbf16>
}

// A sum is read as f32 as well: it stays.
// CHECK-LABEL: func.func @wide(
// CHECK:         linalg.generic
// CHECK:         linalg.generic {{.*}} ins(%{{.*}} : tensor<4x8xf32>)
// CHECK:           arith.truncf
// CHECK:           arith.extf
func.func @wide(%a: tensor<4x16xbf16>, %b: tensor<8x16xbf16>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  %p = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<4x16xbf16>, tensor<8x16xbf16>) outs(%f : tensor<4x8xf32>) {
    ^bb0(%x: bf16, %y: bf16, %o: f32):
      %0 = arith.extf %x : bf16 to f32
      %1 = arith.extf %y : bf16 to f32
      %2 = arith.mulf %0, %1 : f32
      %3 = arith.addf %2, %o : f32
      linalg.yield %3 : f32
  } -> tensor<4x8xf32>
  %m = linalg.generic {indexing_maps = [#row, #row], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
    ^bb0(%x: f32, %o: f32):
      %0 = arith.truncf %x : f32 to bf16
      %1 = arith.extf %0 : bf16 to f32
      %2 = arith.addf %1, %x : f32
      linalg.yield %2 : f32
  } -> tensor<4x8xf32>
  return %m : tensor<4x8xf32>
}
