#map = affine_map<(d0) -> (d0)>
func.func private @kernel_elementwise_0(%x: tensor<6xf32>, %into: tensor<6xf32>) -> tensor<6xf32> attributes {
  mlirstack.kernel = "elementwise", mlirstack.schedule = {name = "elementwise"}
} {
  %0 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
      ins(%x : tensor<6xf32>) outs(%into : tensor<6xf32>) {
  ^bb0(%a: f32, %b: f32):
    %1 = math.exp %a : f32
    linalg.yield %1 : f32
  } -> tensor<6xf32>
  return %0 : tensor<6xf32>
}
func.func @prepare(%w: tensor<7xf32> {mlirstack.argument = 0 : i64, mlirstack.parameter = "w"}) -> tensor<7xf32> {
  %empty = tensor.empty() : tensor<7xf32>
  %0 = linalg.negf ins(%w : tensor<7xf32>) outs(%empty : tensor<7xf32>) -> tensor<7xf32>
  return %0 : tensor<7xf32>
}
func.func @main(%x: tensor<7xf32> {mlirstack.argument = 1 : i64}, %w: tensor<7xf32> {mlirstack.prepared = 0 : i64})
    -> (tensor<6xf32>, tensor<7xf32>) {
  %slice = tensor.extract_slice %x[1] [6] [1] : tensor<7xf32> to tensor<6xf32>
  %empty = tensor.empty() : tensor<6xf32>
  %0 = func.call @kernel_elementwise_0(%slice, %empty) : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xf32>
  return %0, %w : tensor<6xf32>, tensor<7xf32>
}
