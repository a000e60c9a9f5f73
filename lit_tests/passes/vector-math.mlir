// RUN: mlirstack-opt %s --mlirstack-vector-math='functions=none' | FileCheck %s

// An own polynomial for exp on vectors of f32, and no call of it element by element.
// CHECK-LABEL: func.func @exp(
// CHECK-NOT:     math.exp
// CHECK:         {{math.fma|llvm.intr.fma|vector.fma|arith.mulf}}
// CHECK:         return
func.func @exp(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.exp %x : vector<8xf32>
  return %0 : vector<8xf32>
}
