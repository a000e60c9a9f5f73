// Two reductions with one operation are one over both dimensions; what starts from something, or combines otherwise, stays.
// RUN: mlirstack-opt %s --mlirstack-merge-reductions --canonicalize | FileCheck %s

#all = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#outer = affine_map<(d0, d1, d2) -> (d0, d2)>
#row = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>

// CHECK-DAG:   #[[ALL:.*]] = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
// CHECK-DAG:   #[[FIRST:.*]] = affine_map<(d0, d1, d2) -> (d0)>

// CHECK-LABEL: func.func @sum_of_squares(
// CHECK-SAME:    %[[X:.*]]: tensor<4x5x6xf32>
// CHECK:         linalg.generic
// CHECK-SAME:      indexing_maps = [#[[ALL]], #[[FIRST]]], iterator_types = ["parallel", "reduction", "reduction"]
// CHECK-SAME:      ins(%[[X]] : tensor<4x5x6xf32>)
// CHECK:           arith.mulf
// CHECK:           arith.addf
// CHECK-NOT:     linalg.generic
// CHECK:         return
func.func @sum_of_squares(%x: tensor<4x5x6xf32>) -> tensor<4xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<4x6xf32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<4x6xf32>) -> tensor<4x6xf32>
  %0 = linalg.generic {indexing_maps = [#all, #outer], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x : tensor<4x5x6xf32>) outs(%start : tensor<4x6xf32>) {
  ^bb0(%in: f32, %out: f32):
    %square = arith.mulf %in, %in : f32
    %sum = arith.addf %square, %out : f32
    linalg.yield %sum : f32
  } -> tensor<4x6xf32>
  %empty_1 = tensor.empty() : tensor<4xf32>
  %start_1 = linalg.fill ins(%zero : f32) outs(%empty_1 : tensor<4xf32>) -> tensor<4xf32>
  %1 = linalg.generic {indexing_maps = [#row, #first], iterator_types = ["parallel", "reduction"]}
      ins(%0 : tensor<4x6xf32>) outs(%start_1 : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %sum = arith.addf %in, %out : f32
    linalg.yield %sum : f32
  } -> tensor<4xf32>
  return %1 : tensor<4xf32>
}

// CHECK-LABEL: func.func @maximum_of_sums(
// CHECK-COUNT-2: linalg.generic
// CHECK:         return
func.func @maximum_of_sums(%x: tensor<4x5x6xf32>) -> tensor<4xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<4x6xf32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<4x6xf32>) -> tensor<4x6xf32>
  %0 = linalg.generic {indexing_maps = [#all, #outer], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x : tensor<4x5x6xf32>) outs(%start : tensor<4x6xf32>) {
  ^bb0(%in: f32, %out: f32):
    %sum = arith.addf %in, %out : f32
    linalg.yield %sum : f32
  } -> tensor<4x6xf32>
  %empty_1 = tensor.empty() : tensor<4xf32>
  %start_1 = linalg.fill ins(%zero : f32) outs(%empty_1 : tensor<4xf32>) -> tensor<4xf32>
  %1 = linalg.generic {indexing_maps = [#row, #first], iterator_types = ["parallel", "reduction"]}
      ins(%0 : tensor<4x6xf32>) outs(%start_1 : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %largest = arith.maximumf %in, %out : f32
    linalg.yield %largest : f32
  } -> tensor<4xf32>
  return %1 : tensor<4xf32>
}

// CHECK-LABEL: func.func @sums_that_start_from_one(
// CHECK-COUNT-2: linalg.generic
// CHECK:         return
func.func @sums_that_start_from_one(%x: tensor<4x5x6xf32>) -> tensor<4xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %empty = tensor.empty() : tensor<4x6xf32>
  %start = linalg.fill ins(%one : f32) outs(%empty : tensor<4x6xf32>) -> tensor<4x6xf32>
  %0 = linalg.generic {indexing_maps = [#all, #outer], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x : tensor<4x5x6xf32>) outs(%start : tensor<4x6xf32>) {
  ^bb0(%in: f32, %out: f32):
    %sum = arith.addf %in, %out : f32
    linalg.yield %sum : f32
  } -> tensor<4x6xf32>
  %empty_1 = tensor.empty() : tensor<4xf32>
  %start_1 = linalg.fill ins(%zero : f32) outs(%empty_1 : tensor<4xf32>) -> tensor<4xf32>
  %1 = linalg.generic {indexing_maps = [#row, #first], iterator_types = ["parallel", "reduction"]}
      ins(%0 : tensor<4x6xf32>) outs(%start_1 : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %sum = arith.addf %in, %out : f32
    linalg.yield %sum : f32
  } -> tensor<4xf32>
  return %1 : tensor<4xf32>
}
