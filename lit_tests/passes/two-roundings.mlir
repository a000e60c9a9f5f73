// RUN: mlirstack-opt %s --mlirstack-two-roundings | FileCheck %s

// CHECK-LABEL:   func.func @scalar(
// CHECK-SAME:        %[[X:.+]]: f64
// CHECK:           %[[SINGLE:.+]] = arith.truncf %[[X]] : f64 to f32
// CHECK:           arith.truncf %[[SINGLE]] : f32 to bf16
func.func @scalar(%x: f64) -> bf16 {
  %0 = arith.truncf %x : f64 to bf16
  return %0 : bf16
}

// CHECK-LABEL:   func.func @vector(
// CHECK-SAME:        %[[X:.+]]: vector<4xf64>
// CHECK:           %[[SINGLE:.+]] = arith.truncf %[[X]] : vector<4xf64> to vector<4xf32>
// CHECK:           arith.truncf %[[SINGLE]] : vector<4xf32> to vector<4xbf16>
func.func @vector(%x: vector<4xf64>) -> vector<4xbf16> {
  %0 = arith.truncf %x : vector<4xf64> to vector<4xbf16>
  return %0 : vector<4xbf16>
}

// CHECK-LABEL:   func.func @half(
// CHECK:           %[[SINGLE:.+]] = arith.truncf %{{.+}} : f64 to f32
// CHECK:           arith.truncf %[[SINGLE]] : f32 to f16
func.func @half(%x: f64) -> f16 {
  %0 = arith.truncf %x : f64 to f16
  return %0 : f16
}

// What there are instructions for stays as it is.
// CHECK-LABEL:   func.func @one_rounding(
// CHECK:           arith.truncf %{{.+}} : f64 to f32
// CHECK-NEXT:      return
func.func @one_rounding(%x: f64) -> f32 {
  %0 = arith.truncf %x : f64 to f32
  return %0 : f32
}
