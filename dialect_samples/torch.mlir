// # torch: PyTorch's operators, one op for each
//
// For: a faithful image of the exported graph: ATen ops, Python scalars, value semantics (`!torch.vtensor`).
// Level: torch, the entry of the stack.
// Before: the FX graph of torch.export. After: tosa, or linalg where TOSA has no words for an op.
// Natural here: decomposing rare operators into common ones, and shape and dtype inference by PyTorch's own rules.
// Try: mlirstack-opt dialect_samples/torch.mlir --pass-pipeline='builtin.module(torch-backend-to-tosa-backend-pipeline)'
//
// RUN: mlirstack-opt %s --pass-pipeline='builtin.module(torch-backend-to-tosa-backend-pipeline)' | FileCheck %s --check-prefix=TOSA
// RUN: mlirstack-opt %s --pass-pipeline='builtin.module(torch-backend-to-linalg-on-tensors-backend-pipeline)' | FileCheck %s --check-prefix=LINALG

// The same layer through both routes: one TOSA op for each step, or named and generic linalg ops.
// TOSA-LABEL: func.func @layer(
// TOSA-SAME:    %[[X:.*]]: tensor<2x4xf32>, %[[W:.*]]: tensor<4x3xf32>) -> tensor<2x3xf32>
// TOSA:         %[[MM:.*]] = tosa.matmul
// TOSA:         tosa.clamp

// LINALG-LABEL: func.func @layer(
// LINALG:       linalg.matmul ins(%{{.*}}, %{{.*}} : tensor<2x4xf32>, tensor<4x3xf32>)
// LINALG:       linalg.generic
// LINALG:         arith.cmpf ugt
// LINALG:         arith.select
func.func @layer(%x: !torch.vtensor<[2,4],f32>, %w: !torch.vtensor<[4,3],f32>) -> !torch.vtensor<[2,3],f32> {
  %product = torch.aten.mm %x, %w : !torch.vtensor<[2,4],f32>, !torch.vtensor<[4,3],f32> -> !torch.vtensor<[2,3],f32>
  %relu = torch.aten.relu %product : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],f32>
  return %relu : !torch.vtensor<[2,3],f32>
}
