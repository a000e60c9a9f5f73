// # index: arithmetic of sizes and subscripts
//
// For: integers as wide as a pointer, whose width is not fixed before the target is.
// Level: beside arith.
// Before: shape computations, affine maps. After: llvm, as i64 or i32.
// Natural here: folding that is right for every width of the target.
// Try: mlirstack-opt dialect_samples/index.mlir --convert-index-to-llvm
//
// RUN: mlirstack-opt %s --convert-index-to-llvm | FileCheck %s --check-prefix=WIDE
// RUN: mlirstack-opt %s --convert-index-to-llvm='index-bitwidth=32' | FileCheck %s --check-prefix=NARROW
// RUN: mlirstack-opt %s --convert-index-to-llvm --convert-func-to-llvm --reconcile-unrealized-casts \
// RUN:   | mlirstack-run --result=index | FileCheck %s --check-prefix=NUMBERS

// WIDE:    llvm.mlir.constant(100 : i64) : i64
// NARROW:  llvm.mlir.constant(100 : i32) : i32
// Blocks of 32 that cover 100 elements.
// NUMBERS: 4
func.func @main() -> index {
  %n = index.constant 100
  %block = index.constant 32
  %0 = index.ceildivu %n, %block
  return %0 : index
}
