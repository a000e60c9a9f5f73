// RUN: mlirstack-opt %s --convert-torch-onnx-to-torch --mlirstack-finish-onnx | FileCheck %s
// RUN: not mlirstack-opt %S/Inputs/onnx-left.mlir --mlirstack-finish-onnx 2>&1 | FileCheck %s --check-prefix=LEFT

// Which opset a function is of says nothing once it stands in the torch dialect.
// CHECK-LABEL: func.func @relu(
// CHECK-NOT:     torch.onnx_meta
// CHECK:         torch.aten.relu
func.func @relu(%x: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],f32> attributes {torch.onnx_meta.opset_version = 21 : si64} {
  %0 = torch.operator "onnx.Relu"(%x) : (!torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],f32>
  return %0 : !torch.vtensor<[2,3],f32>
}

// LEFT: no conversion to the torch dialect for onnx.Unheard(!torch.vtensor<[2],f32>) of node 'here', onnx.Unheard(!torch.vtensor<[3],f32>)
