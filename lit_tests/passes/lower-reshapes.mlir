// RUN: mlirstack-opt %s --mlirstack-lower-reshapes | FileCheck %s

// Which dimensions are merged is what the operation says, not what their sizes look like.
// CHECK-LABEL: func.func @merge(
// CHECK:         %[[IN:.*]] = torch_c.to_builtin_tensor %{{.*}} -> tensor<?x?x16xf32>
// CHECK:         %[[MERGED:.*]] = tensor.collapse_shape %[[IN]] {{\[}}[0, 1], [2]] : tensor<?x?x16xf32> into tensor<?x16xf32>
// CHECK:         torch_c.from_builtin_tensor %[[MERGED]]
func.func @merge(%x: !torch.vtensor<[?,?,16],f32>) -> !torch.vtensor<[?,16],f32> {
  %first = torch.constant.int 0
  %last = torch.constant.int 1
  %0 = torch.aten.flatten.using_ints %x, %first, %last : !torch.vtensor<[?,?,16],f32>, !torch.int, !torch.int -> !torch.vtensor<[?,16],f32>
  return %0 : !torch.vtensor<[?,16],f32>
}

// CHECK-LABEL: func.func @split(
// CHECK:         tensor.expand_shape %{{.*}} {{\[}}[0, 1], [2]] output_shape [%{{.*}}, 2, 16] : tensor<?x16xi64> into tensor<?x2x16xi64>
func.func @split(%x: !torch.vtensor<[?,16],si64>, %n: !torch.int) -> !torch.vtensor<[?,2,16],si64> {
  %dim = torch.constant.int 0
  %two = torch.constant.int 2
  %sizes = torch.prim.ListConstruct %n, %two : (!torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.unflatten.int %x, %dim, %sizes : !torch.vtensor<[?,16],si64>, !torch.int, !torch.list<int> -> !torch.vtensor<[?,2,16],si64>
  return %0 : !torch.vtensor<[?,2,16],si64>
}

// A dimension that is no constant is left to torch-mlir.
// CHECK-LABEL: func.func @unknown(
// CHECK:         torch.aten.flatten.using_ints
func.func @unknown(%x: !torch.vtensor<[?,?,16],f32>, %n: !torch.int) -> !torch.vtensor<[?,16],f32> {
  %first = torch.constant.int 0
  %0 = torch.aten.flatten.using_ints %x, %first, %n : !torch.vtensor<[?,?,16],f32>, !torch.int, !torch.int -> !torch.vtensor<[?,16],f32>
  return %0 : !torch.vtensor<[?,16],f32>
}
