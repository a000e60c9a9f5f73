// RUN: mlirstack-opt %s --mlirstack-name-reshapes | FileCheck %s

// Two heads of 4 are joined, and so are length and batch: what 8 is made of is not guessed from the left.
// CHECK-LABEL: func.func @join(
// CHECK:         torch.aten.flatten.using_ints %{{.*}} -> !torch.vtensor<[?,?,8],f32>
// CHECK:         torch.aten.flatten.using_ints %{{.*}} -> !torch.vtensor<[?,8],f32>
// CHECK-NOT:     torch.aten.view
func.func @join(%x: !torch.vtensor<[?,?,2,4],f32>) -> !torch.vtensor<[?,8],f32> {
  %rest = torch.constant.int -1
  %eight = torch.constant.int 8
  %sizes = torch.prim.ListConstruct %rest, %eight : (!torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.view %x, %sizes : !torch.vtensor<[?,?,2,4],f32>, !torch.list<int> -> !torch.vtensor<[?,8],f32>
  return %0 : !torch.vtensor<[?,8],f32>
}

// Sizes read from the tensor, transposed since, tell that dimensions stay.
// CHECK-LABEL: func.func @split(
// CHECK-NOT:     torch.runtime.assert
// CHECK:         torch.aten.view
func.func @split(%x: !torch.vtensor<[?,?,8],f32>) -> !torch.vtensor<[?,?,2,4],f32> {
  %zero = torch.constant.int 0
  %one = torch.constant.int 1
  %two = torch.constant.int 2
  %four = torch.constant.int 4
  %batch = torch.aten.size.int %x, %zero : !torch.vtensor<[?,?,8],f32>, !torch.int -> !torch.int
  %length = torch.aten.size.int %x, %one : !torch.vtensor<[?,?,8],f32>, !torch.int -> !torch.int
  %0 = torch.aten.transpose.int %x, %zero, %one : !torch.vtensor<[?,?,8],f32>, !torch.int, !torch.int -> !torch.vtensor<[?,?,8],f32>
  %sizes = torch.prim.ListConstruct %length, %batch, %two, %four : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %1 = torch.aten.view %0, %sizes : !torch.vtensor<[?,?,8],f32>, !torch.list<int> -> !torch.vtensor<[?,?,2,4],f32>
  return %1 : !torch.vtensor<[?,?,2,4],f32>
}

// A size that is known in a call only may be -1 there, and may not fit.
// CHECK-LABEL: func.func @given(
// CHECK:         torch.aten.floordiv.int
// CHECK:         torch.runtime.assert %{{.*}}, "one size of a new shape at most is -1"
// CHECK:         torch.runtime.assert %{{.*}}, "the elements of a tensor fit its new shape"
// CHECK:         torch.aten.flatten.using_ints %{{.*}} -> !torch.vtensor<[12],f32>
// CHECK:         torch.aten.unflatten.int %{{.*}} -> !torch.vtensor<[?,?],f32>
func.func @given(%x: !torch.vtensor<[2,6],f32>, %n: !torch.int, %m: !torch.int) -> !torch.vtensor<[?,?],f32> {
  %sizes = torch.prim.ListConstruct %n, %m : (!torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.view %x, %sizes : !torch.vtensor<[2,6],f32>, !torch.list<int> -> !torch.vtensor<[?,?],f32>
  return %0 : !torch.vtensor<[?,?],f32>
}

// Known shapes stay as they are.
// CHECK-LABEL: func.func @known(
// CHECK:         torch.aten.view
func.func @known(%x: !torch.vtensor<[2,6],f32>) -> !torch.vtensor<[3,4],f32> {
  %three = torch.constant.int 3
  %four = torch.constant.int 4
  %sizes = torch.prim.ListConstruct %three, %four : (!torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.view %x, %sizes : !torch.vtensor<[2,6],f32>, !torch.list<int> -> !torch.vtensor<[3,4],f32>
  return %0 : !torch.vtensor<[3,4],f32>
}
