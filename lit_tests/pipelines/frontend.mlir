// From the torch dialect to linalg, through TOSA and without it. (The stages fx and torch begin with an exported graph in
// Python, and are tested in tests/.)
// RUN: mlirstack-opt %s --pipeline=cpu --from=torch --to=tosa | FileCheck %s --check-prefix=TOSA
// RUN: mlirstack-opt %s --pipeline=cpu --from=torch --to=linalg | FileCheck %s --check-prefix=LINALG
// RUN: mlirstack-opt %s --pipeline=cpu --route=linalg --from=torch --to=linalg | FileCheck %s --check-prefix=LINALG

// TOSA-LABEL: func.func @main(%{{.*}}: tensor<4x8xf32>) -> tensor<4x8xf32>
// TOSA:         tosa.tanh
// TOSA:         tosa.mul
// TOSA-NOT:     torch.

// LINALG-LABEL: func.func @main(%{{.*}}: tensor<4x8xf32>) -> tensor<4x8xf32>
// LINALG:         linalg.generic
// LINALG:           math.tanh
// LINALG:           arith.mulf
func.func @main(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32> {
  %tanh = torch.aten.tanh %x : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %square = torch.aten.mul.Tensor %tanh, %x : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  return %square : !torch.vtensor<[4,8],f32>
}
