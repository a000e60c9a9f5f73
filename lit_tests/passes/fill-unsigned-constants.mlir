// RUN: mlirstack-opt %s --mlirstack-fill-unsigned-constants | FileCheck %s

// One number in all places is filled in; where there are several, they stay.
// CHECK-LABEL: func.func @constants(
// CHECK:         %[[BYTE:.*]] = arith.constant -56 : i8
// CHECK:         %[[EMPTY:.*]] = tensor.empty() : tensor<4xi8>
// CHECK:         %[[FILLED:.*]] = linalg.fill ins(%[[BYTE]] : i8) outs(%[[EMPTY]] : tensor<4xi8>) -> tensor<4xi8>
// CHECK:         %[[ONE:.*]] = torch_c.from_builtin_tensor %[[FILLED]] : tensor<4xi8> -> !torch.vtensor<[4],ui8>
// CHECK:         %[[SEVERAL:.*]] = torch.vtensor.literal
// CHECK:         return %[[ONE]], %[[SEVERAL]]
func.func @constants() -> (!torch.vtensor<[4],ui8>, !torch.vtensor<[2],ui8>) {
  %0 = torch.vtensor.literal(dense<200> : tensor<4xui8>) : !torch.vtensor<[4],ui8>
  %1 = torch.vtensor.literal(dense<[1, 200]> : tensor<2xui8>) : !torch.vtensor<[2],ui8>
  return %0, %1 : !torch.vtensor<[4],ui8>, !torch.vtensor<[2],ui8>
}
