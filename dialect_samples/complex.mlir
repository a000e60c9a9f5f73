// # complex: complex numbers
//
// For: arithmetic on pairs of floats as one value, with the special cases of division and of branch cuts.
// Level: beside arith and math.
// Before: torch, tosa (fft), stablehlo. After: arith and math on the two parts, or a struct in llvm.
// Natural here: identities of complex arithmetic, before they are lost in eight real operations.
// Try: mlirstack-opt dialect_samples/complex.mlir --convert-complex-to-standard --canonicalize
//
// RUN: mlirstack-opt %s --convert-complex-to-standard | FileCheck %s
// RUN: mlirstack-opt %s --convert-complex-to-standard --convert-to-llvm --reconcile-unrealized-casts \
// RUN:   | mlirstack-run --result=f32 | FileCheck %s --check-prefix=NUMBERS

// CHECK-LABEL: func.func @main
// CHECK-COUNT-4: arith.mulf
// (1 + 2i)(3 + 4i) = -5 + 10i
// NUMBERS: 10
func.func @main() -> f32 {
  %c1 = arith.constant 1.0 : f32
  %c2 = arith.constant 2.0 : f32
  %c3 = arith.constant 3.0 : f32
  %c4 = arith.constant 4.0 : f32
  %a = complex.create %c1, %c2 : complex<f32>
  %b = complex.create %c3, %c4 : complex<f32>
  %product = complex.mul %a, %b : complex<f32>
  %imaginary = complex.im %product : complex<f32>
  return %imaginary : f32
}
