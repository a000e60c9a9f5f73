// RUN: mlirstack-opt %s --mlirstack-schedule-file='path=%S/Inputs/tile-matmul.mlir entry=tile' | FileCheck %s
// RUN: not mlirstack-opt %s --mlirstack-schedule-file='path=%S/Inputs/tile-matmul.mlir' 2>&1 | FileCheck %s --check-prefix=ENTRY
// RUN: not mlirstack-opt %s --mlirstack-schedule-file=path=nowhere.mlir 2>&1 | FileCheck %s --check-prefix=MISSING

// ENTRY: no named sequence '@__transform_main'
// MISSING: cannot read schedule nowhere.mlir

// CHECK-LABEL: func.func @main(
// CHECK:         scf.for
// CHECK:           linalg.matmul ins(%{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<8x8xf32>)
func.func @main(%a: tensor<8x8xf32>, %b: tensor<8x8xf32>, %c: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %r = linalg.matmul ins(%a, %b : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %r : tensor<8x8xf32>
}
