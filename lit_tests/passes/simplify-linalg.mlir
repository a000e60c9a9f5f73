// RUN: mlirstack-opt %s --mlirstack-simplify-linalg | FileCheck %s

// A maximum starts from minus infinity, so that a row of -inf stays -inf.
// CHECK-LABEL: func.func @main(
// CHECK:         %[[LOWEST:.*]] = arith.constant 0xFF800000 : f32
// CHECK:         linalg.fill ins(%[[LOWEST]]
// CHECK:         linalg.reduce
func.func @main(%x: tensor<4x8xf32>) -> tensor<4xf32> {
  %lowest = arith.constant -3.40282347E+38 : f32
  %empty = tensor.empty() : tensor<4xf32>
  %init = linalg.fill ins(%lowest : f32) outs(%empty : tensor<4xf32>) -> tensor<4xf32>
  %0 = linalg.reduce ins(%x : tensor<4x8xf32>) outs(%init : tensor<4xf32>) dimensions = [1]
    (%a: f32, %m: f32) {
      %1 = arith.maximumf %a, %m : f32
      linalg.yield %1 : f32
    }
  return %0 : tensor<4xf32>
}

// The size that torch infers is that of the group through its other sizes.
// CHECK-LABEL: func.func @inferred(
// CHECK-SAME:    %[[X:.*]]: tensor<?xf32>
// CHECK:         %[[SIZE:.*]] = tensor.dim %[[X]]
// CHECK:         %[[ROWS:.*]] = arith.divsi %[[SIZE]]
// CHECK:         tensor.expand_shape %[[X]] {{.*}} output_shape [%[[ROWS]], 6]
func.func @inferred(%x: tensor<?xf32>) -> tensor<?x6xf32> {
  %inferred = arith.constant -1 : index
  %0 = tensor.expand_shape %x [[0, 1]] output_shape [%inferred, 6] : tensor<?xf32> into tensor<?x6xf32>
  return %0 : tensor<?x6xf32>
}

// Where nothing is reduced, the number that an op starts from stands in its body.
// CHECK-LABEL: func.func @nothing_reduced(
// CHECK:         %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK:         linalg.generic
// CHECK-NEXT:    ^bb0(%[[IN:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT:      arith.addf %[[IN]], %[[ZERO]]
func.func @nothing_reduced(%x: tensor<f32>) -> tensor<f32> {
  %zero = arith.constant 0.000000e+00 : f32
  %empty = tensor.empty() : tensor<f32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<f32>) -> tensor<f32>
  %0 = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []} ins(%x : tensor<f32>) outs(%init : tensor<f32>) {
  ^bb0(%in: f32, %sum: f32):
    %1 = arith.addf %in, %sum : f32
    linalg.yield %1 : f32
  } -> tensor<f32>
  return %0 : tensor<f32>
}

// What is joined keeps its static sizes.
// CHECK-LABEL: func.func @joined(
// CHECK-SAME:    %[[X:.*]]: tensor<1x5xf32>, %[[Y:.*]]: tensor<3x5xf32>
// CHECK:         tensor.concat dim(0) %[[X]], %[[Y]] : (tensor<1x5xf32>, tensor<3x5xf32>) -> tensor<4x5xf32>
func.func @joined(%x: tensor<1x5xf32>, %y: tensor<3x5xf32>) -> tensor<4x5xf32> {
  %0 = tensor.cast %x : tensor<1x5xf32> to tensor<?x5xf32>
  %1 = tensor.cast %y : tensor<3x5xf32> to tensor<?x5xf32>
  %2 = tensor.concat dim(0) %0, %1 : (tensor<?x5xf32>, tensor<?x5xf32>) -> tensor<4x5xf32>
  return %2 : tensor<4x5xf32>
}

// An op that yields nothing but scalars fills each of its results.
// CHECK-LABEL: func.func @two_fills(
// CHECK:         %[[PLACES:.*]] = linalg.fill ins(%{{.*}} : i64)
// CHECK:         %[[VALUES:.*]] = linalg.fill ins(%{{.*}} : f32)
// CHECK-NOT:     linalg.generic
// CHECK:         return %[[PLACES]], %[[VALUES]]
func.func @two_fills(%places: tensor<4xi64>, %values: tensor<4xf32>) -> (tensor<4xi64>, tensor<4xf32>) {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1.0 : f32
  %0:2 = linalg.generic {
    indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]
  } outs(%places, %values : tensor<4xi64>, tensor<4xf32>) {
  ^bb0(%a: i64, %b: f32):
    linalg.yield %zero, %one : i64, f32
  } -> (tensor<4xi64>, tensor<4xf32>)
  return %0#0, %0#1 : tensor<4xi64>, tensor<4xf32>
}
