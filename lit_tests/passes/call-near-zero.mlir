// RUN: mlirstack-opt %s --mlirstack-call-near-zero | FileCheck %s

// CHECK-DAG: func.func private @log1pf(f32) -> f32
// CHECK-DAG: func.func private @expm1(f64) -> f64

// CHECK-LABEL:   func.func @single(
// CHECK-SAME:        %[[X:.+]]: f32
// CHECK:           %[[Y:.+]] = call @log1pf(%[[X]]) : (f32) -> f32
// CHECK:           return %[[Y]] : f32
func.func @single(%x: f32) -> f32 {
  %0 = math.log1p %x : f32
  return %0 : f32
}

// CHECK-LABEL:   func.func @double(
// CHECK:           call @expm1(%{{.+}}) : (f64) -> f64
func.func @double(%x: f64) -> f64 {
  %0 = math.expm1 %x : f64
  return %0 : f64
}

// Vectors have functions of their own, and other functions conversions that keep what is small.
// CHECK-LABEL:   func.func @others(
// CHECK:           math.log1p %{{.+}} : vector<4xf32>
// CHECK:           math.log %{{.+}} : f32
func.func @others(%x: vector<4xf32>, %y: f32) -> (vector<4xf32>, f32) {
  %0 = math.log1p %x : vector<4xf32>
  %1 = math.log %y : f32
  return %0, %1 : vector<4xf32>, f32
}
