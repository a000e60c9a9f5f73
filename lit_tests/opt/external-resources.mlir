// External resources belong to no dialect: they are handed through to the output, next to those of dialects.
// RUN: mlirstack-opt %s --canonicalize 2>&1 | FileCheck %s --implicit-check-not=warning
// RUN: mlirstack-opt %s | mlirstack-opt | FileCheck %s
// Long values are left out where that is asked for, and the reproducer where it is run.
// RUN: mlirstack-opt %s --mlir-elide-resource-strings-if-larger=10 | FileCheck %s --check-prefix=ELIDED --implicit-check-not=note:
// RUN: mlirstack-opt %s --run-reproducer 2>&1 | FileCheck %s --check-prefix=REPRODUCED --implicit-check-not=mlir_reproducer
// Bytecode cannot hold them here, which is said.
// RUN: mlirstack-opt %s --emit-bytecode -o /dev/null 2>&1 | FileCheck %s --check-prefix=BYTECODE

// CHECK: arith.constant
// CHECK: dialect_resources: {
// CHECK: blob: "0x0400000001000000"
// CHECK: external_resources: {
// CHECK-NEXT: mlir_reproducer: {
// CHECK-NEXT: pipeline: "builtin.module(cse)",
// CHECK-NEXT: verify_each: true
// CHECK-NEXT: },
// CHECK-NEXT: my_tool: {
// CHECK-NEXT: note: "braces } and #-} in a string",
// CHECK-NEXT: count: "0x04000000"
// CHECK-NEXT: }
// CHECK-NEXT: }
// CHECK-NEXT: #-}


// REPRODUCED: func.func @f
// REPRODUCED: external_resources: {
// REPRODUCED-NEXT: my_tool: {

// All values but true are longer than ten characters with their quotes.
// ELIDED: external_resources: {
// ELIDED-NEXT: mlir_reproducer: {
// ELIDED-NEXT: verify_each: true
// ELIDED-NEXT: }
// ELIDED-NEXT: }

// BYTECODE: warning: ignoring unknown external resources for 'my_tool'
func.func @f() -> tensor<1xi32> {
  %0 = arith.constant dense_resource<blob> : tensor<1xi32>
  return %0 : tensor<1xi32>
}

{-#
  dialect_resources: {builtin: {blob: "0x0400000001000000"}},
  // A comment may stand anywhere.
  external_resources: {
    mlir_reproducer: {pipeline: "builtin.module(cse)", verify_each: true},
    my_tool: {note: "braces } and #-} in a string", count: "0x04000000"}
  }
#-}
