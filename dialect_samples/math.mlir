// # math: elementary functions
//
// For: exp, tanh, rsqrt and the like on scalars and vectors, with no word yet on how they are computed.
// Level: from linalg bodies down to vectors.
// Before: torch, tosa. After: arith (polynomials, expansions), LLVM intrinsics, libm or a device library.
// Natural here: choosing precision against speed; replacing a function by others that the machine has.
// Try: mlirstack-opt dialect_samples/math.mlir --math-expand-ops --convert-math-to-libm
//
// RUN: mlirstack-opt %s --math-expand-ops | FileCheck %s --check-prefix=EXPAND
// RUN: mlirstack-opt %s --convert-math-to-libm | FileCheck %s --check-prefix=LIBM
// RUN: mlirstack-opt %s --convert-math-to-llvm | FileCheck %s --check-prefix=LLVM
// RUN: mlirstack-opt %s --convert-math-to-libm --convert-to-llvm | mlirstack-run --result=f32 | FileCheck %s --check-prefix=NUMBERS

// EXPAND-LABEL: func.func @tanh
// EXPAND-NOT:   math.tanh
// EXPAND:       math.exp
// EXPAND:       arith.divf
// LIBM:         func.func private @tanhf(f32) -> f32
// LIBM-LABEL:   func.func @tanh
// LIBM:         call @tanhf
// LLVM-LABEL:   func.func @tanh
// LLVM:         llvm.intr.tanh
func.func @tanh(%x: f32) -> f32 {
  %0 = math.tanh %x : f32
  return %0 : f32
}

// NUMBERS: 0.761594
func.func @main() -> f32 {
  %x = arith.constant 1.0 : f32
  %0 = call @tanh(%x) : (f32) -> f32
  return %0 : f32
}
