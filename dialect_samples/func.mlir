// # func: functions
//
// For: definitions, declarations and calls, with any types for arguments and results.
// Level: all of them, down to llvm.
// Before: the front end. After: llvm.
// Natural here: inlining, removal of unused and of duplicate functions, what callers and callees agree on.
// Try: mlirstack-opt dialect_samples/func.mlir --inline --symbol-dce
//
// RUN: mlirstack-opt %s --inline --symbol-dce | FileCheck %s --check-prefix=INLINE
// RUN: mlirstack-opt %s --duplicate-function-elimination | FileCheck %s --check-prefix=SAME
// RUN: mlirstack-opt %s --convert-to-llvm | FileCheck %s --check-prefix=LLVM
// RUN: mlirstack-opt %s --convert-to-llvm | mlirstack-run --result=i32 | FileCheck %s --check-prefix=NUMBERS

// INLINE-NOT:  @square
// INLINE:      func.func @main
// INLINE-NOT:  call
// SAME:        func.func private @square
// SAME-NOT:    func.func private @power_of_two
// SAME-COUNT-2: call @square
// LLVM:        llvm.func @square(%{{.*}}: i32) -> i32 attributes {sym_visibility = "private"}
func.func private @square(%x: i32) -> i32 {
  %0 = arith.muli %x, %x : i32
  return %0 : i32
}
func.func private @power_of_two(%x: i32) -> i32 {
  %0 = arith.muli %x, %x : i32
  return %0 : i32
}

// NUMBERS: 81
func.func @main() -> i32 {
  %three = arith.constant 3 : i32
  %nine = call @square(%three) : (i32) -> i32
  %result = call @power_of_two(%nine) : (i32) -> i32
  return %result : i32
}
