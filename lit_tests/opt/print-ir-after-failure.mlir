// RUN: not mlirstack-opt %s --cse --torch-verify-tosa-backend-contract --mlir-print-ir-after-failure -o /dev/null 2>&1 | FileCheck %s
// CHECK-NOT: IR Dump After CSE
// CHECK: IR Dump After VerifyTosaBackendContract Failed
// CHECK: func.func @foo()
func.func @foo() {
  "torch.operator"() {name = "my.op"} : () -> ()
  return
}
