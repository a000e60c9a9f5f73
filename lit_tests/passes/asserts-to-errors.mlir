// RUN: mlirstack-opt %s --mlirstack-asserts-to-errors | FileCheck %s

// A check that fails stores its number and leaves the function; whoever calls it looks.
// CHECK: module attributes {mlirstack.{{[a-z_]+}} = ["index out of range"]}
// CHECK-LABEL: func.func private @get(
// CHECK-SAME:    %[[OK:.*]]: i1, %{{.*}}: f32, %[[ERROR:.*]]: memref<i64>
// CHECK-NOT:     cf.assert
// CHECK:         cf.cond_br %[[OK]], ^[[NEXT:.*]], ^[[FAILED:bb[0-9]+]]
// CHECK:         memref.store %{{.*}}, %[[ERROR]][]
func.func private @get(%ok: i1, %x: f32) -> f32 {
  cf.assert %ok, "index out of range"
  return %x : f32
}
// CHECK-LABEL: func.func @caller(
// CHECK-SAME:    %[[ERROR:[a-z0-9]+]]: memref<i64>
// CHECK:         call @get(%{{.*}}, %{{.*}}, %[[ERROR]])
// CHECK:         memref.load %[[ERROR]][]
// CHECK:         cf.cond_br
func.func @caller(%ok: i1, %x: f32) -> f32 {
  %0 = call @get(%ok, %x) : (i1, f32) -> f32
  return %0 : f32
}
// CHECK-LABEL: func.func @without(
// CHECK-NOT:     memref
func.func @without(%x: f32) -> f32 {
  return %x : f32
}
