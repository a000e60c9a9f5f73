// A failing pipeline leaves a reproducer: the module before it, and the pipeline, which --run-reproducer runs again.
// RUN: rm -f %t.mlir && not mlirstack-opt %s --cse --torch-verify-tosa-backend-contract --mlir-pass-pipeline-crash-reproducer=%t.mlir 2>&1 | FileCheck %s --check-prefix=FAILS
// RUN: FileCheck %s --check-prefix=FILE < %t.mlir
// RUN: not mlirstack-opt --run-reproducer %t.mlir 2>&1 | FileCheck %s --check-prefix=AGAIN
// RUN: not mlirstack-opt %s --cse --torch-verify-tosa-backend-contract --mlir-pass-pipeline-crash-reproducer=%t.mlir --mlir-pass-pipeline-local-reproducer -o /dev/null 2>&1 | FileCheck %s --check-prefix=FAILS
// RUN: FileCheck %s --check-prefix=LOCAL < %t.mlir
// RUN: mlirstack-opt %s --canonicalize --mlir-generate-reproducer=%t.fine.mlir && FileCheck %s --check-prefix=FINE < %t.fine.mlir
// RUN: mlirstack-opt %t.fine.mlir --run-reproducer --dump-pass-pipeline 2>&1 | FileCheck %s --check-prefix=FINE_AGAIN
// Without the flag the section is ignored.
// RUN: mlirstack-opt %t.mlir | FileCheck %s --check-prefix=IGNORED

// FAILS: Module does not conform to the TOSA backend contract
// FAILS: Failures have been detected while processing an MLIR pass pipeline
// FAILS: Pipeline failed while executing {{.*}}`VerifyTosaBackendContract` on 'builtin.module' operation{{.*}}: reproducer generated at `{{.*}}.mlir`

// FILE: torch.operator
// FILE: external_resources
// FILE: pipeline: "builtin.module(cse,torch-verify-tosa-backend-contract)"
// FILE: verify_each: true

// AGAIN: Module does not conform to the TOSA backend contract

// LOCAL-NOT: arith.constant
// LOCAL: pipeline: "builtin.module(torch-verify-tosa-backend-contract)"

// FINE: pipeline: "builtin.module(canonicalize
// FINE_AGAIN: canonicalize
// FINE_AGAIN: func.func @foo()
// IGNORED: func.func @foo()
func.func @foo() {
  %unused = arith.constant 1 : i32
  "torch.operator"() {name = "my.op"} : () -> ()
  return
}
