// Which diagnostics are printed, and with what.
// RUN: not mlirstack-opt %s --split-input-file 2>&1 | FileCheck %s
// RUN: not mlirstack-opt %s --split-input-file --mlir-print-op-on-diagnostic=false 2>&1 | FileCheck %s --check-prefix=BRIEF
// RUN: not mlirstack-opt %s --split-input-file --mlir-disable-diagnostic-notes 2>&1 | FileCheck %s --check-prefix=BRIEF

// CHECK: diagnostics.mlir:[[#@LINE+4]]:3: error: 'func.return' op has 1 operands, but enclosing function (@f) returns 0
// CHECK: note: see current operation: "func.return"
// BRIEF-NOT: see current operation
func.func @f(%x: i32) {
  return %x : i32
}

// -----

// CHECK: <unknown>:0: error: 'func.return' op has 1 operands
func.func @nowhere(%x: i32) {
  return %x : i32 loc(unknown)
}

// -----

// CHECK: callee.mlir:7:8: error: 'func.return' op has 1 operands
// CHECK-NEXT: caller.mlir:9:10: note: called from
func.func @inlined(%x: i32) {
  return %x : i32 loc(callsite("callee.mlir":7:8 at "caller.mlir":9:10))
}
