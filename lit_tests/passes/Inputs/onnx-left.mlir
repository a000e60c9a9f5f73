func.func @left(%x: !torch.vtensor<[2],f32>, %y: !torch.vtensor<[3],f32>) -> !torch.vtensor<[3],f32> {
  %0 = torch.operator "onnx.Unheard"(%x) : (!torch.vtensor<[2],f32>) -> !torch.vtensor<[3],f32> loc("here")
  %1 = torch.operator "onnx.Unheard"(%y) : (!torch.vtensor<[3],f32>) -> !torch.vtensor<[3],f32> loc(unknown)
  return %1 : !torch.vtensor<[3],f32>
}
