// Equal private functions become the first of them, which has the lines of all; a public one, and one that differs, stay.
// RUN: mlirstack-opt %s --pass-pipeline='builtin.module(mlirstack-merge-equal)' --mlir-print-debuginfo | FileCheck %s

// CHECK-LABEL: func.func private @first
// CHECK-NEXT: arith.addf %{{.*}} loc(#[[ADD:.*]])
// CHECK-NOT: @second
// CHECK: func.func private @other
// CHECK: func.func @public
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %[[A:.*]] = call @first
// CHECK-NEXT: %[[B:.*]] = call @first(%[[A]])
// CHECK-NEXT: %[[C:.*]] = call @other(%[[B]])
// CHECK-NEXT: call @public(%[[C]])
// CHECK-DAG: #[[ONE:.*]] = loc("model.py":1:0)
// CHECK-DAG: #[[TWO:.*]] = loc("model.py":2:0)
// CHECK-DAG: #[[ADD]] = loc(fused[#[[ONE]], #[[TWO]]])

func.func private @first(%x: f32) -> f32 {
  %y = arith.addf %x, %x : f32 loc("model.py":1:0)
  return %y : f32
}
func.func private @second(%x: f32) -> f32 {
  %y = arith.addf %x, %x : f32 loc("model.py":2:0)
  return %y : f32
}
func.func private @other(%x: f32) -> f32 {
  %y = arith.mulf %x, %x : f32
  return %y : f32
}
func.func @public(%x: f32) -> f32 {
  %y = arith.addf %x, %x : f32
  return %y : f32
}
func.func @main(%x: f32) -> f32 {
  %a = call @first(%x) : (f32) -> f32
  %b = call @second(%a) : (f32) -> f32
  %c = call @other(%b) : (f32) -> f32
  %d = call @public(%c) : (f32) -> f32
  return %d : f32
}
