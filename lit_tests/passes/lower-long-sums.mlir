// RUN: mlirstack-opt %s --mlirstack-lower-long-sums | FileCheck %s

// CHECK-LABEL: func.func @row_and_column(
// CHECK:         %[[ROW:.*]] = torch_c.to_builtin_tensor %arg0 : !torch.vtensor<[3],si64> -> tensor<3xi64>
// CHECK:         %[[COLUMN:.*]] = torch_c.to_builtin_tensor %arg1 : !torch.vtensor<[2,1],si64> -> tensor<2x1xi64>
// CHECK:         %[[WIDE:.*]] = tosa.reshape %[[ROW]]
// CHECK:         %[[SUM:.*]] = tosa.add %[[WIDE]], %[[COLUMN]] : (tensor<1x3xi64>, tensor<2x1xi64>) -> tensor<2x3xi64>
// CHECK:         torch_c.from_builtin_tensor %[[SUM]] : tensor<2x3xi64> -> !torch.vtensor<[2,3],si64>
func.func @row_and_column(%a: !torch.vtensor<[3],si64>, %b: !torch.vtensor<[2,1],si64>) -> !torch.vtensor<[2,3],si64> {
  %one = torch.constant.int 1
  %0 = torch.aten.add.Tensor %a, %b, %one : !torch.vtensor<[3],si64>, !torch.vtensor<[2,1],si64>, !torch.int -> !torch.vtensor<[2,3],si64>
  return %0 : !torch.vtensor<[2,3],si64>
}

// CHECK-LABEL: func.func @reversed(
// CHECK-DAG:     %[[FIVE:.*]] = "tosa.const"() <{values = dense<8589934597> : tensor<1xi64>}>
// CHECK-DAG:     %[[DOUBLE:.*]] = tosa.mul %{{.*}} -> tensor<3xi64>
// CHECK:         tosa.sub %[[FIVE]], %[[DOUBLE]] : (tensor<1xi64>, tensor<3xi64>) -> tensor<3xi64>
func.func @reversed(%a: !torch.vtensor<[3],si64>) -> !torch.vtensor<[3],si64> {
  %number = torch.constant.int 8589934597
  %two = torch.constant.int 2
  %0 = torch.aten.rsub.Scalar %a, %number, %two : !torch.vtensor<[3],si64>, !torch.int, !torch.int -> !torch.vtensor<[3],si64>
  return %0 : !torch.vtensor<[3],si64>
}

// Sums of other types are not this pass's affair.
// CHECK-LABEL: func.func @short(
// CHECK:         torch.aten.add.Tensor
func.func @short(%a: !torch.vtensor<[3],si32>) -> !torch.vtensor<[3],si32> {
  %one = torch.constant.int 1
  %0 = torch.aten.add.Tensor %a, %a, %one : !torch.vtensor<[3],si32>, !torch.vtensor<[3],si32>, !torch.int -> !torch.vtensor<[3],si32>
  return %0 : !torch.vtensor<[3],si32>
}
