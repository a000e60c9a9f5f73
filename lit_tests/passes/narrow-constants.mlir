// RUN: mlirstack-opt %s --mlirstack-narrow-constants | FileCheck %s

// 0.1 is not exact in f32, so the canonicalizer leaves the rounding for run time.
// CHECK-LABEL: func.func @main(
// CHECK-NOT:     f64
// CHECK:         %[[TENTH:.*]] = arith.constant 1.000000e-01 : f32
// CHECK-NOT:     arith.truncf
// CHECK:         arith.mulf %{{.*}}, %[[TENTH]] : f32
func.func @main(%x: f32) -> f32 {
  %wide = arith.constant 1.000000e-01 : f64
  %narrow = arith.truncf %wide : f64 to f32
  %r = arith.mulf %x, %narrow : f32
  return %r : f32
}

// What is not a constant is still rounded.
// CHECK-LABEL: func.func @computed(
// CHECK:         arith.truncf %{{.*}} : f64 to f32
func.func @computed(%x: f64) -> f32 {
  %narrow = arith.truncf %x : f64 to f32
  return %narrow : f32
}
