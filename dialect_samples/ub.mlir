// # ub: undefined behaviour, made visible
//
// For: values nobody may depend on (poison), and places that are never reached.
// Level: all levels.
// Before: lowerings that need some value where none matters. After: llvm.
// Natural here: folding: whatever is computed from poison is poison.
// Try: mlirstack-opt dialect_samples/ub.mlir --canonicalize
//
// RUN: mlirstack-opt %s --canonicalize | FileCheck %s
// RUN: mlirstack-opt %s --convert-ub-to-llvm | FileCheck %s --check-prefix=LLVM

// CHECK-LABEL: func.func @nothing_matters
// CHECK-NEXT:  %[[P:.*]] = ub.poison : i32
// CHECK-NEXT:  return %[[P]]
// LLVM:        llvm.mlir.poison : i32
func.func @nothing_matters(%x: i32) -> i32 {
  %0 = ub.poison : i32
  %1 = arith.addi %x, %0 : i32
  return %1 : i32
}
