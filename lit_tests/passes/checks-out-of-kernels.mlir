// RUN: mlirstack-opt %s --mlirstack-checks-out-of-kernels | FileCheck %s

// The bounds check leaves the loop nest: all positions first, one assertion, then reads that cannot fail.
// CHECK-LABEL: func.func @main(
// CHECK:         %[[OK:.*]] = linalg.generic
// CHECK:         %[[ALL:.*]] = tensor.extract %[[OK]][]
// CHECK:         cf.assert %[[ALL]]
// CHECK:         linalg.generic
// CHECK-NOT:       cf.assert
// CHECK:           tensor.extract
#map = affine_map<(d0) -> (d0)>
func.func @main(%table: tensor<10xf32>, %positions: tensor<4xi64>) -> tensor<4xf32> {
  %c10 = arith.constant 10 : i64
  %c0 = arith.constant 0 : i64
  %empty = tensor.empty() : tensor<4xf32>
  %0 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
      ins(%positions : tensor<4xi64>) outs(%empty : tensor<4xf32>) {
  ^bb0(%p: i64, %out: f32):
    %below = arith.cmpi slt, %p, %c10 : i64
    cf.assert %below, "index must be smaller than dim size"
    %from = arith.cmpi sge, %p, %c0 : i64
    cf.assert %from, "index must be larger or equal to 0"
    %i = arith.index_cast %p : i64 to index
    %x = tensor.extract %table[%i] : tensor<10xf32>
    linalg.yield %x : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// The places of words are known, and none is outside: there is nothing to check, or to clamp.
// CHECK-LABEL: func.func @places(
// CHECK-NOT:     cf.assert
// CHECK-NOT:     arith.minsi
// CHECK:         tensor.extract
#line = affine_map<(i, j) -> (i)>
#both = affine_map<(i, j) -> (i, j)>
func.func @places(%table: tensor<4x2xf32>) -> tensor<4x2xf32> {
  %places = arith.constant dense<[0, 1, 2, 3]> : tensor<4xi64>
  %narrow = tensor.empty() : tensor<4xi32>
  %0 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
      ins(%places : tensor<4xi64>) outs(%narrow : tensor<4xi32>) {
  ^bb0(%p: i64, %out: i32):
    %i = arith.trunci %p : i64 to i32
    linalg.yield %i : i32
  } -> tensor<4xi32>
  %empty = tensor.empty() : tensor<4x2xf32>
  %1 = linalg.generic {indexing_maps = [#line, #both], iterator_types = ["parallel", "parallel"]}
      ins(%0 : tensor<4xi32>) outs(%empty : tensor<4x2xf32>) {
  ^bb0(%p: i32, %out: f32):
    %i = arith.index_cast %p : i32 to index
    %j = linalg.index 1 : index
    %x = tensor.extract %table[%i, %j] : tensor<4x2xf32>
    linalg.yield %x : f32
  } -> tensor<4x2xf32>
  return %1 : tensor<4x2xf32>
}

// One of them is outside of a shorter table.
// CHECK-LABEL: func.func @too_few(
// CHECK:         cf.assert
// CHECK:         arith.minsi
func.func @too_few(%table: tensor<3xf32>) -> tensor<4xf32> {
  %places = arith.constant dense<[0, 1, 2, 3]> : tensor<4xi64>
  %empty = tensor.empty() : tensor<4xf32>
  %0 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
      ins(%places : tensor<4xi64>) outs(%empty : tensor<4xf32>) {
  ^bb0(%p: i64, %out: f32):
    %i = arith.index_cast %p : i64 to index
    %x = tensor.extract %table[%i] : tensor<3xf32>
    linalg.yield %x : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// What is divided by is checked too, and 0 and -1 are replaced; a constant is not.
// CHECK-LABEL: func.func @division(
// CHECK:         linalg.generic
// CHECK-SAME:      iterator_types = ["reduction"]
// CHECK:         cf.assert {{.*}}, "integer division by zero"
// CHECK:         linalg.generic
// CHECK:           %[[SAFE:.*]] = arith.select {{.*}}, %{{.*}}, %[[BY:.*]] : i64
// CHECK:           arith.divsi %{{.*}}, %[[SAFE]]
// CHECK-NOT:     cf.assert
// CHECK:         arith.divsi
// CHECK:         return
func.func @division(%x: tensor<4xi64>, %y: tensor<4xi64>) -> tensor<4xi64> {
  %three = arith.constant dense<3> : tensor<i64>
  %empty = tensor.empty() : tensor<4xi64>
  %0 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel"]}
      ins(%x, %y : tensor<4xi64>, tensor<4xi64>) outs(%empty : tensor<4xi64>) {
  ^bb0(%a: i64, %b: i64, %out: i64):
    %q = arith.divsi %a, %b : i64
    linalg.yield %q : i64
  } -> tensor<4xi64>
  %1 = linalg.generic {indexing_maps = [#map, affine_map<(d0) -> ()>, #map], iterator_types = ["parallel"]}
      ins(%0, %three : tensor<4xi64>, tensor<i64>) outs(%empty : tensor<4xi64>) {
  ^bb0(%a: i64, %b: i64, %out: i64):
    %q = arith.divsi %a, %b : i64
    linalg.yield %q : i64
  } -> tensor<4xi64>
  return %1 : tensor<4xi64>
}

// Numbers without signs have no -1: the largest of them stays what is divided by.
// CHECK-LABEL: func.func @without_signs(
// CHECK:         cf.assert {{.*}}, "integer division by zero"
// CHECK:         linalg.generic
// CHECK:           %[[ZERO:.*]] = arith.cmpi eq, %[[BY:.*]], %{{.*}} : i64
// CHECK-NOT:       arith.ori
// CHECK:           %[[SAFE:.*]] = arith.select %[[ZERO]], %{{.*}}, %[[BY]] : i64
// CHECK:           arith.remui %{{.*}}, %[[SAFE]]
func.func @without_signs(%x: tensor<4xi64>, %y: tensor<4xi64>) -> tensor<4xi64> {
  %e = tensor.empty() : tensor<4xi64>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
                       iterator_types = ["parallel"]}
      ins(%x, %y : tensor<4xi64>, tensor<4xi64>) outs(%e : tensor<4xi64>) {
  ^bb0(%a: i64, %b: i64, %out: i64):
    %q = arith.remui %a, %b : i64
    linalg.yield %q : i64
  } -> tensor<4xi64>
  return %r : tensor<4xi64>
}
