// # arith: numbers
//
// For: integer and floating-point arithmetic on scalars, vectors and tensors, with flags for overflow and fast math.
// Level: from linalg bodies down to vectors; the last before llvm.
// Before: tosa and linalg bodies. After: llvm.
// Natural here: constant folding, algebraic identities, narrowing of integers, emulation of types that a machine lacks.
// Try: mlirstack-opt dialect_samples/arith.mlir --arith-expand --canonicalize
//
// RUN: mlirstack-opt %s --canonicalize | FileCheck %s --check-prefix=FOLD
// RUN: mlirstack-opt %s --arith-expand='include-bf16=true' | FileCheck %s --check-prefix=EXPAND
// RUN: mlirstack-opt %s --arith-expand --convert-to-llvm | mlirstack-run --result=i32 | FileCheck %s --check-prefix=NUMBERS

// FOLD-LABEL: func.func @identities(
// FOLD-SAME:    %[[X:.*]]: i32
// FOLD-NEXT:  return %[[X]]
func.func @identities(%x: i32) -> i32 {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %sum = arith.addi %x, %zero : i32
  %product = arith.muli %sum, %one : i32
  return %product : i32
}

// Rounding to bfloat16 without an instruction for it: integer arithmetic on the bits.
// EXPAND-LABEL: func.func @round_to_bf16
// EXPAND:       arith.bitcast %{{.*}} : f32 to i32
// EXPAND:       arith.shrui
// EXPAND:       arith.bitcast %{{.*}} : i16 to bf16
func.func @round_to_bf16(%x: f32) -> bf16 {
  %0 = arith.truncf %x : f32 to bf16
  return %0 : bf16
}

// ceil(-7 / 2), with the division that machines have, which rounds towards zero.
// EXPAND-LABEL: func.func @ceildiv
// EXPAND-NOT:   arith.ceildivsi
// EXPAND:       arith.divsi
func.func @ceildiv(%a: i32, %b: i32) -> i32 {
  %0 = arith.ceildivsi %a, %b : i32
  return %0 : i32
}

// NUMBERS: -3
func.func @main() -> i32 {
  %a = arith.constant -7 : i32
  %b = arith.constant 2 : i32
  %0 = call @ceildiv(%a, %b) : (i32, i32) -> i32
  return %0 : i32
}
