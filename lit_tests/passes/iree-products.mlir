// Products of weights as kernels for processors inside IREE's modules: cut out with what follows, called, cut into blocks.
// RUN: mlirstack-opt %s --mlirstack-iree-regions='vector_bits=256' | FileCheck %s --check-prefix=REGIONS
// RUN: mlirstack-opt %s --mlirstack-iree-regions='vector_bits=256' --mlirstack-fold-transposes --mlirstack-generalize-named='windows=true' --mlirstack-iree-linked-kernels | FileCheck %s --check-prefix=CALLS
// RUN: mlirstack-opt %s --mlirstack-iree-regions='vector_bits=256' --mlirstack-fold-transposes --mlirstack-generalize-named='windows=true' --mlirstack-iree-linked-kernels --mlirstack-iree-blocks='vector_bits=256' | FileCheck %s --check-prefix=BLOCKS

// The weight's transpose, the product, and the sum of what it leaves; not the product of what comes with the call.
// REGIONS:      module attributes {mlirstack.program = dense<
// REGIONS:        func.func private @kernel_product_0(
// REGIONS:          linalg.transpose
// REGIONS:          linalg.matmul
// REGIONS:          arith.addf
// REGIONS-NOT:      linalg.matmul
// REGIONS-NOT:    @main

// The program again; the weight is read as it is stored.
// CALLS:        func.func private @kernel_contraction_0(%{{.*}}: tensor<33x70xf32>, %{{.*}}: tensor<130x70xf32>
// CALLS:        func.func @main(%[[X:.*]]: tensor<33x70xf32>, %[[W:[^:]*]]: tensor<130x70xf32>
// CALLS:          %[[Y:.*]] = call @kernel_contraction_0(%[[X]], %[[W]],
// CALLS:          linalg.matmul ins(%[[Y]],

// 130 columns in four blocks of 40, each five panels of 8; the last block begins at column 90.
// BLOCKS:       func.func private @kernel_contraction_0(%{{.*}}: tensor<33x70xf32>, %{{.*}}: tensor<[[BLOCKS:[0-9]+]]x[[PANELS:[0-9]+]]x70x[[WIDTH:[0-9]+]]xf32>
// BLOCKS-SAME:    mlirstack.grid = array<i64: 33, {{[0-9]+}}, 130, {{[0-9]+}}>
// BLOCKS-SAME:    mlirstack.places = [array<i64: 70, 0, 0>, array<i64: 0, 0, {{[0-9]+}}>, array<i64: 130, 1, 0>, array<i64: 130, 1, 0>]
// BLOCKS:         linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]
// BLOCKS:         tensor.insert_slice
// BLOCKS:       func.func @main(
// BLOCKS:         %[[PACKED:.*]] = linalg.transpose {{.*}} outs(%{{.*}} : tensor<[[BLOCKS]]x[[PANELS]]x70x[[WIDTH]]xf32>)
// BLOCKS:         call @kernel_contraction_0(%{{.*}}, %[[PACKED]]

#map = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<33x70xf32>, %w: tensor<130x70xf32> {mlirstack.parameter = "w"}, %r: tensor<33x130xf32>, %v: tensor<130x64xf32>) -> tensor<33x64xf32> {
  %zero = arith.constant 0.0 : f32
  %turned = tensor.empty() : tensor<70x130xf32>
  %wt = linalg.transpose ins(%w : tensor<130x70xf32>) outs(%turned : tensor<70x130xf32>) permutation = [1, 0]
  %empty = tensor.empty() : tensor<33x130xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<33x130xf32>) -> tensor<33x130xf32>
  %y = linalg.matmul ins(%x, %wt : tensor<33x70xf32>, tensor<70x130xf32>) outs(%init : tensor<33x130xf32>) -> tensor<33x130xf32>
  %z = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]}
      ins(%y, %r : tensor<33x130xf32>, tensor<33x130xf32>) outs(%empty : tensor<33x130xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.addf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<33x130xf32>
  %last = tensor.empty() : tensor<33x64xf32>
  %start = linalg.fill ins(%zero : f32) outs(%last : tensor<33x64xf32>) -> tensor<33x64xf32>
  %end = linalg.matmul ins(%z, %v : tensor<33x130xf32>, tensor<130x64xf32>) outs(%start : tensor<33x64xf32>) -> tensor<33x64xf32>
  return %end : tensor<33x64xf32>
}
