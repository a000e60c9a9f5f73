// RUN: mlirstack-opt %s --mlirstack-lower-bitcasts | FileCheck %s

// CHECK-LABEL: func.func @bits(
// CHECK:         %[[IN:.*]] = torch_c.to_builtin_tensor %{{.*}} -> tensor<?x4xf32>
// CHECK:         linalg.generic
// CHECK:           arith.bitcast %{{.*}} : f32 to i32
// CHECK:         torch_c.from_builtin_tensor %{{.*}} : tensor<?x4xi32> -> !torch.vtensor<[?,4],si32>
func.func @bits(%x: !torch.vtensor<[?,4],f32>) -> !torch.vtensor<[?,4],si32> {
  %int32 = torch.constant.int 3
  %0 = torch.aten.view.dtype %x, %int32 : !torch.vtensor<[?,4],f32>, !torch.int -> !torch.vtensor<[?,4],si32>
  return %0 : !torch.vtensor<[?,4],si32>
}

// Types of another width are not this pass's affair.
// CHECK-LABEL: func.func @bytes(
// CHECK:         torch.aten.view.dtype
func.func @bytes(%x: !torch.vtensor<[2,4],f32>) -> !torch.vtensor<[2,16],si8> {
  %int8 = torch.constant.int 1
  %0 = torch.aten.view.dtype %x, %int8 : !torch.vtensor<[2,4],f32>, !torch.int -> !torch.vtensor<[2,16],si8>
  return %0 : !torch.vtensor<[2,16],si8>
}
