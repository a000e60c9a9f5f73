// # quant: integers that stand for real numbers
//
// For: types that hold scale and zero point, so that quantised tensors cannot be mistaken for integers.
// Level: torch, tosa and linalg, as a type.
// Before: a quantised model. After: arith on the stored integers.
// Natural here: moving scales through operators; afterwards they are anonymous multiplications.
// Try: mlirstack-opt dialect_samples/quant.mlir --lower-quant-ops --canonicalize
//
// RUN: mlirstack-opt %s --pass-pipeline='builtin.module(func.func(lower-quant-ops,canonicalize))' | FileCheck %s
// RUN: mlirstack-opt %s --pass-pipeline='builtin.module(func.func(lower-quant-ops,canonicalize))' | mlirstack-opt --convert-to-llvm --reconcile-unrealized-casts | mlirstack-run --result=f32 | FileCheck %s --check-prefix=NUMBERS

// Dequantisation: convert, subtract the zero point, multiply by the scale.
// CHECK-LABEL: func.func @to_real(
// CHECK:       arith.sitofp
// CHECK:       arith.subf
// CHECK:       arith.mulf
!q = !quant.uniform<i8:f32, 0.5:10>
func.func @to_real(%stored: i8) -> f32 {
  %q = quant.scast %stored : i8 to !q
  %real = quant.dcast %q : !q to f32
  return %real : f32
}

// (30 - 10) * 0.5
// NUMBERS: 10
func.func @main() -> f32 {
  %stored = arith.constant 30 : i8
  %real = call @to_real(%stored) : (i8) -> f32
  return %real : f32
}
