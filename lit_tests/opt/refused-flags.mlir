// What the bindings cannot do is refused by name, never ignored.
// RUN: not mlirstack-opt %s --load-pass-plugin=lib.so 2>&1 | FileCheck %s --check-prefix=PLUGIN
// RUN: not mlirstack-opt %s --debug-only=greedy-rewriter 2>&1 | FileCheck %s --check-prefix=DEBUG
// RUN: not mlirstack-opt %s --mlir-print-unique-ssa-ids 2>&1 | FileCheck %s --check-prefix=SSA
// RUN: not mlirstack-opt %s --log-actions-to=- 2>&1 | FileCheck %s --check-prefix=ACTIONS
// RUN: not mlirstack-opt %s --mlir-print-local-scope --mlir-print-ir-after-all --cse 2>&1 | FileCheck %s --check-prefix=SCOPE
// A switch that is set to what happens anyway is fine.
// RUN: mlirstack-opt %s --mlir-print-unique-ssa-ids=false | FileCheck %s

// PLUGIN: --load-pass-plugin is not supported
// DEBUG: --debug-only is not supported
// SSA: --mlir-print-unique-ssa-ids is not supported
// ACTIONS: --log-actions-to is not supported
// SCOPE: --mlir-print-local-scope is not supported together with --mlir-print-ir-after-all
// CHECK: func.func private @f()
func.func private @f()
