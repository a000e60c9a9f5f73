// A transform-dialect schedule from a file, from its default entry point or another one, after passes.
// RUN: mlirstack-opt %s --canonicalize --transform %S/Inputs/tile.mlir | FileCheck %s
// RUN: mlirstack-opt %s --transform=%S/Inputs/tile.mlir --transform-entry-point=mark | FileCheck %s --check-prefix=MARK
// RUN: not mlirstack-opt %s --transform %S/Inputs/tile.mlir --transform-entry-point=nothing 2>&1 | FileCheck %s --check-prefix=ENTRY
// RUN: not mlirstack-opt %s --transform %S/Inputs/missing.mlir 2>&1 | FileCheck %s --check-prefix=MISSING

// CHECK-LABEL: func.func @matmul
// CHECK: scf.for {{.*}} step %c8
// CHECK: scf.for {{.*}} step %c16
// CHECK: linalg.matmul {{.*}} tensor<8x64xf32>, tensor<64x16xf32>
// MARK: linalg.matmul {marked}
// ENTRY: could not find {{.*}}nothing
// MISSING: cannot open transform schedule '{{.*}}missing.mlir'
func.func @matmul(%a: tensor<32x64xf32>, %b: tensor<64x32xf32>, %c: tensor<32x32xf32>) -> tensor<32x32xf32> {
  %0 = linalg.matmul ins(%a, %b : tensor<32x64xf32>, tensor<64x32xf32>) outs(%c : tensor<32x32xf32>) -> tensor<32x32xf32>
  return %0 : tensor<32x32xf32>
}
