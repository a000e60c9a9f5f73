// A dialect that an IRDL file defines.
// RUN: mlirstack-opt %s --irdl-file=%S/Inputs/cmath.irdl.mlir | FileCheck %s
// RUN: not mlirstack-opt %s 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// CHECK: "cmath.norm"(%{{.*}}) : (!cmath.complex<f32>) -> f32
// UNKNOWN: cmath
func.func @norm(%c: !cmath.complex<f32>) -> f32 {
  %0 = "cmath.norm"(%c) : (!cmath.complex<f32>) -> f32
  return %0 : f32
}
