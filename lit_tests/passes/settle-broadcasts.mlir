// A broadcast that a size of 1 decides at run time: gone where source and result have one size, else a clamped read.
// RUN: mlirstack-opt %s --mlirstack-settle-broadcasts --canonicalize | FileCheck %s

#stretched = affine_map<(d0, d1) -> (0, d1)>
#full = affine_map<(d0, d1) -> (d0, d1)>

// CHECK-LABEL: func.func @same_size(
// CHECK-SAME:    %[[X:.*]]: tensor<?x8xf32>
// CHECK-NEXT:    return %[[X]]
func.func @same_size(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %x, %c0 : tensor<?x8xf32>
  %is_one = arith.cmpi eq, %n, %c1 : index
  %0 = scf.if %is_one -> (tensor<?x8xf32>) {
    %empty = tensor.empty(%n) : tensor<?x8xf32>
    %1 = linalg.generic {indexing_maps = [#stretched, #full], iterator_types = ["parallel", "parallel"]}
        ins(%x : tensor<?x8xf32>) outs(%empty : tensor<?x8xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<?x8xf32>
    scf.yield %1 : tensor<?x8xf32>
  } else {
    scf.yield %x : tensor<?x8xf32>
  }
  return %0 : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @other_size(
// CHECK-SAME:    %[[X:.*]]: tensor<?x8xf32>, %[[M:.*]]: index
// CHECK-NOT:     scf.if
// CHECK-DAG:     tensor.empty(%[[M]])
// CHECK-DAG:     %[[N:.*]] = tensor.dim %[[X]]
// CHECK:         %[[LAST:.*]] = arith.subi %[[N]], %{{.*}}
// CHECK:         %[[I:.*]] = linalg.index 0
// CHECK:         %[[CLAMPED:.*]] = arith.minui %[[I]], %[[LAST]]
// CHECK:         tensor.extract %[[X]][%[[CLAMPED]], %{{.*}}]
func.func @other_size(%x: tensor<?x8xf32>, %m: index) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %x, %c0 : tensor<?x8xf32>
  %is_one = arith.cmpi eq, %n, %c1 : index
  %0 = scf.if %is_one -> (tensor<?x8xf32>) {
    %empty = tensor.empty(%m) : tensor<?x8xf32>
    %1 = linalg.generic {indexing_maps = [#stretched, #full], iterator_types = ["parallel", "parallel"]}
        ins(%x : tensor<?x8xf32>) outs(%empty : tensor<?x8xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<?x8xf32>
    scf.yield %1 : tensor<?x8xf32>
  } else {
    scf.yield %x : tensor<?x8xf32>
  }
  return %0 : tensor<?x8xf32>
}
