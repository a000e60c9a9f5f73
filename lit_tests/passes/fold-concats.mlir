// Halves that are swapped, one of them negated, are one op; what is not made of slices stays.
// RUN: mlirstack-opt %s --mlirstack-fold-concats --canonicalize | FileCheck %s

// CHECK-LABEL: func.func @rotated(
// CHECK-SAME:    %[[X:.*]]: tensor<3x2x8xf32>
// CHECK-NOT:     tensor.extract_slice
// CHECK:         %[[R:.*]] = linalg.generic
// CHECK-DAG:       %[[I0:.*]] = linalg.index 0
// CHECK-DAG:       %[[I1:.*]] = linalg.index 1
// CHECK-DAG:       %[[I2:.*]] = linalg.index 2
// CHECK:           %[[LOW:.*]] = tensor.extract %[[X]][%[[I1]], %[[I0]], %{{.*}}] : tensor<3x2x8xf32>
// CHECK:           %[[HIGH:.*]] = tensor.extract %[[X]][%[[I1]], %[[I0]], %{{.*}}] : tensor<3x2x8xf32>
// CHECK:           %[[MINUS:.*]] = arith.negf %[[HIGH]]
// CHECK:           %[[FIRST:.*]] = arith.cmpi slt, %[[I2]], %{{.*}}
// CHECK:           arith.select %[[FIRST]], %[[MINUS]], %[[LOW]]
// CHECK:         return %[[R]]
#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
func.func @rotated(%x: tensor<3x2x8xf32>) -> tensor<2x3x8xf32> {
  %e = tensor.empty() : tensor<2x3x8xf32>
  %h = tensor.empty() : tensor<2x3x4xf32>
  %t = linalg.transpose ins(%x : tensor<3x2x8xf32>) outs(%e : tensor<2x3x8xf32>) permutation = [1, 0, 2]
  %low = tensor.extract_slice %t[0, 0, 0] [2, 3, 4] [1, 1, 1] : tensor<2x3x8xf32> to tensor<2x3x4xf32>
  %high = tensor.extract_slice %t[0, 0, 4] [2, 3, 4] [1, 1, 1] : tensor<2x3x8xf32> to tensor<2x3x4xf32>
  %minus = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%high : tensor<2x3x4xf32>) outs(%h : tensor<2x3x4xf32>) {
  ^bb0(%a: f32, %out: f32):
    %n = arith.negf %a : f32
    linalg.yield %n : f32
  } -> tensor<2x3x4xf32>
  %0 = tensor.insert_slice %minus into %e[0, 0, 0] [2, 3, 4] [1, 1, 1] : tensor<2x3x4xf32> into tensor<2x3x8xf32>
  %1 = tensor.insert_slice %low into %0[0, 0, 4] [2, 3, 4] [1, 1, 1] : tensor<2x3x4xf32> into tensor<2x3x8xf32>
  return %1 : tensor<2x3x8xf32>
}

// CHECK-LABEL: func.func @shifted(
// CHECK-NOT:     tensor.concat
// CHECK:         linalg.generic
func.func @shifted(%x: tensor<8xf32>) -> tensor<8xf32> {
  %a = tensor.extract_slice %x[5] [3] [1] : tensor<8xf32> to tensor<3xf32>
  %b = tensor.extract_slice %x[0] [5] [1] : tensor<8xf32> to tensor<5xf32>
  %0 = tensor.concat dim(0) %a, %b : (tensor<3xf32>, tensor<5xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// CHECK-LABEL: func.func @arguments(
// CHECK:         tensor.concat
func.func @arguments(%a: tensor<3xf32>, %b: tensor<5xf32>) -> tensor<8xf32> {
  %0 = tensor.concat dim(0) %a, %b : (tensor<3xf32>, tensor<5xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
