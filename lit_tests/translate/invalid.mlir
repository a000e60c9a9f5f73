// An op that has no translation is named; the bindings would crash.
// RUN: mlirstack-translate %s --mlir-to-llvmir --split-input-file --verify-diagnostics
// RUN: not mlirstack-translate %s --mlir-to-llvmir --split-input-file 2>&1 | FileCheck %s

// CHECK: invalid.mlir:[[#@LINE+2]]:1: error: cannot be converted to LLVM IR: missing `LLVMTranslationDialectInterface`
// expected-error@+1 {{cannot be converted to LLVM IR: missing `LLVMTranslationDialectInterface` registration for dialect for op: func.func}}
func.func private @f()

// -----

// CHECK: define void @fine()
llvm.func @fine() {
  llvm.return
}
