// The passes around entry points of tensors: arguments numbered, protected against writes.
// RUN: mlirstack-opt %s --mlirstack-number-arguments | FileCheck %s --check-prefix=NUMBER
// RUN: mlirstack-opt %s --mlirstack-protect-arguments | FileCheck %s --check-prefix=PROTECT

// NUMBER-LABEL:  func.func @main(%{{.*}}: tensor<4xf32> {mlirstack.argument = 0 : i64}, %{{.*}}: tensor<4xf32> {mlirstack.argument = 1 : i64})
// PROTECT-LABEL: func.func @main(%{{.*}}: tensor<4xf32> {bufferization.writable = false}, %{{.*}}: tensor<4xf32> {bufferization.writable = false})
func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
