// # cf: blocks and branches
//
// For: control flow as a graph of blocks; values pass as block arguments, there is no phi.
// Level: the last before llvm.
// Before: scf. After: llvm.
// Natural here: what needs arbitrary jumps: leaving a function early, simplifying branches, lifting back to scf.
// Try: mlirstack-opt dialect_samples/cf.mlir --convert-cf-to-llvm --convert-func-to-llvm
//
// RUN: mlirstack-opt %s --convert-to-llvm | FileCheck %s --check-prefix=LLVM
// RUN: mlirstack-opt %s --lift-cf-to-scf | FileCheck %s --check-prefix=LIFT
// RUN: mlirstack-opt %s --convert-to-llvm | mlirstack-run --result=i32 | FileCheck %s --check-prefix=NUMBERS

// LLVM-LABEL: llvm.func @main
// LLVM:       llvm.br ^[[HEAD:.*]](
// LLVM:       llvm.cond_br
// LIFT-LABEL: func.func @main
// LIFT:       scf.while
// LIFT-NOT:   cf.br
// Steps from 6 to 1 by Collatz' rule.
// NUMBERS: 8
func.func @main() -> i32 {
  %start = arith.constant 6 : i32
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %three = arith.constant 3 : i32
  cf.br ^head(%start, %zero : i32, i32)
^head(%n: i32, %steps: i32):
  %done = arith.cmpi eq, %n, %one : i32
  cf.cond_br %done, ^exit, ^body
^body:
  %next_steps = arith.addi %steps, %one : i32
  %remainder = arith.remui %n, %two : i32
  %is_even = arith.cmpi eq, %remainder, %zero : i32
  %half = arith.divui %n, %two : i32
  %triple = arith.muli %n, %three : i32
  %triple_plus_one = arith.addi %triple, %one : i32
  %next = arith.select %is_even, %half, %triple_plus_one : i32
  cf.br ^head(%next, %next_steps : i32, i32)
^exit:
  return %steps : i32
}
