// A slice of a target's stage table.
// RUN: mlirstack-opt %s --pipeline=cpu --from=linalg --to=loops | FileCheck %s
// RUN: mlirstack-opt %s --pipeline=cpu --from=linalg --to=llvmir | FileCheck %s --check-prefix=LLVM
// RUN: not mlirstack-opt %s --pipeline=cpu --from=llvm --to=linalg 2>&1 | FileCheck %s --check-prefix=ORDER

// CHECK: scf.for
// CHECK-NOT: linalg.
// LLVM: define {{.*}} @
// ORDER: stage 'llvm' comes after stage 'linalg'
func.func @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %empty = tensor.empty() : tensor<64x64xf32>
  %0 = linalg.exp ins(%x : tensor<64x64xf32>) outs(%empty : tensor<64x64xf32>) -> tensor<64x64xf32>
  return %0 : tensor<64x64xf32>
}
