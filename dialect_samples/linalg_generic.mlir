// # linalg: generic operations and fusion
//
// For: any perfect loop nest: a map from the loops to the elements of each operand, and a scalar body.
// Level: linalg.
// Before: named operations. After: linalg on tiles, vector, or loops.
// Natural here: fusion. Producer and consumer are put together by composing maps, without any analysis of loops.
// Try: mlirstack-opt dialect_samples/linalg_generic.mlir --linalg-fuse-elementwise-ops --canonicalize
//
// RUN: mlirstack-opt %s --linalg-fuse-elementwise-ops --canonicalize | FileCheck %s
// RUN: mlirstack-opt %s --linalg-fuse-elementwise-ops %bufferize %to_llvm \
// RUN:   | mlirstack-run --result='memref<2x2xf32>' | FileCheck %s --check-prefix=NUMBERS

// One pass over memory instead of two; the broadcast of the bias is a map, not a copy.
// CHECK-DAG:   #[[ROWS:.*]] = affine_map<(d0, d1) -> (d1)>
// CHECK-LABEL: func.func @main
// CHECK:       linalg.generic {{.*}}#[[ROWS]]
// CHECK:         arith.addf
// CHECK:         math.absf
// CHECK-NOT:   linalg.generic

// |[[-4, 1], [2, -8]] + [1, 2]|
// NUMBERS: {{\[\[}}3, 3], [3, 6]]
#all = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>
func.func @main() -> tensor<2x2xf32> attributes {llvm.emit_c_interface} {
  %x = arith.constant dense<[[-4.0, 1.0], [2.0, -8.0]]> : tensor<2x2xf32>
  %bias = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %empty = tensor.empty() : tensor<2x2xf32>
  %sum = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %bias : tensor<2x2xf32>, tensor<2xf32>) outs(%empty : tensor<2x2xf32>) {
  ^bb0(%element: f32, %b: f32, %out: f32):
    %0 = arith.addf %element, %b : f32
    linalg.yield %0 : f32
  } -> tensor<2x2xf32>
  %abs = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%sum : tensor<2x2xf32>) outs(%empty : tensor<2x2xf32>) {
  ^bb0(%element: f32, %out: f32):
    %0 = math.absf %element : f32
    linalg.yield %0 : f32
  } -> tensor<2x2xf32>
  return %abs : tensor<2x2xf32>
}
