// RUN: mlirstack-opt %s --mlirstack-iree-result-sizes | FileCheck %s

// Sizes of results as expressions over argument and axis; none where data decide.
// CHECK:      func.func @main(
// CHECK-SAME:   mlirstack.result_sizes = "{{\[\[\[}}\22*\22, [0, 0], 2], 4], null, {{\[\]\]}}"
func.func @main(%x: tensor<?x2x4xf32>, %count: tensor<i64>) -> (tensor<?x4xf32>, tensor<?xf32>, tensor<i64>) {
  %n = tensor.extract %count[] : tensor<i64>
  %size = arith.index_cast %n : i64 to index
  %made = tensor.empty(%size) : tensor<?xf32>
  %rows = tensor.collapse_shape %x [[0, 1], [2]] : tensor<?x2x4xf32> into tensor<?x4xf32>
  return %rows, %made, %count : tensor<?x4xf32>, tensor<?xf32>, tensor<i64>
}
