// Printing the IR between passes: for all of them or some, one operation or the whole module, as text or as a tree of files.
// RUN: mlirstack-opt %s --pass-pipeline='builtin.module(func.func(cse,canonicalize))' --mlir-print-ir-before=cse -o /dev/null 2>&1 | FileCheck %s --check-prefix=BEFORE
// RUN: mlirstack-opt %s --pass-pipeline='builtin.module(func.func(cse,canonicalize))' --mlir-print-ir-after=cse,canonicalize -o /dev/null 2>&1 | FileCheck %s --check-prefix=AFTER
// RUN: mlirstack-opt %s --cse --canonicalize --mlir-print-ir-after-all --mlir-print-ir-after-change -o /dev/null 2>&1 | FileCheck %s --check-prefix=CHANGE
// RUN: mlirstack-opt %s --pass-pipeline='builtin.module(func.func(cse))' --mlir-print-ir-before-all --mlir-print-ir-module-scope -o /dev/null 2>&1 | FileCheck %s --check-prefix=SCOPE
// RUN: rm -rf %t && mlirstack-opt %s --cse --canonicalize --mlir-print-ir-after-all --mlir-print-ir-tree-dir=%t -o /dev/null
// RUN: FileCheck %s --check-prefix=TREE < %t/builtin_module_no-symbol-name/1_canonicalize.mlir
// The tree of some passes only: each file is numbered as if the others were not printed.
// RUN: rm -rf %t && mlirstack-opt %s --pass-pipeline='builtin.module(canonicalize,func.func(canonicalize,cse),cse)' --mlir-print-ir-after=cse --mlir-print-ir-tree-dir=%t -o /dev/null
// RUN: find %t -name '*.mlir' | sort | FileCheck %s --check-prefix=SOME
// RUN: mlirstack-opt %s --mlirstack-asserts-to-errors --mlir-print-ir-before-all -o /dev/null 2>&1 | FileCheck %s --check-prefix=PYTHON

// BEFORE: IR Dump Before CSEPass{{.*}}cse
// BEFORE-NEXT: func.func @foo()
// BEFORE: IR Dump Before CSEPass{{.*}}cse
// BEFORE-NEXT: func.func @bar()
// BEFORE-NOT: IR Dump

// AFTER: IR Dump After CSEPass
// AFTER-NEXT: @foo
// AFTER: IR Dump After Canonicalizer
// AFTER-NEXT: @foo
// AFTER: IR Dump After CSEPass
// AFTER-NEXT: @bar
// AFTER: IR Dump After Canonicalizer
// AFTER-NEXT: @bar

// CHANGE: IR Dump After CSEPass
// CHANGE-NOT: IR Dump After

// SCOPE: IR Dump Before CSEPass{{.*}}'func.func' operation: @foo
// SCOPE: @foo
// SCOPE: @bar

// TREE: func.func @foo()

// SOME: builtin_module_no-symbol-name/0_cse.mlir
// SOME-NEXT: builtin_module_no-symbol-name/func_func_bar/0_0_cse.mlir
// SOME-NEXT: builtin_module_no-symbol-name/func_func_foo/0_0_cse.mlir
// SOME-NOT: mlir

// PYTHON: IR Dump Before AssertsToErrors: mlirstack-asserts-to-errors
func.func @foo() {
  %0 = arith.constant 0 : i32
  return
}
func.func @bar() {
  return
}
