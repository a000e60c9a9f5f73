// An error in inlined code shows where it was called from: also where the call stack is one of several fused locations, and
// without a line of text where a file cannot be read.
// RUN: not mlirstack-opt %s 2>&1 | FileCheck %s

// CHECK: kernel.py:7:3: error: 'arith.constant' op failed to verify
// CHECK-NEXT: layer.py:12:5: note: called from
// CHECK-NEXT: model at 2.py:31:9: note: called from
// CHECK-NOT: called from
func.func @f() {
  %0 = "arith.constant"() {value = 1 : i64} : () -> i1 loc(fused["pass", callsite("mul"("kernel.py":7:3) at callsite("layer.py":12:5 at "model at 2.py":31:9))])
  return
}
