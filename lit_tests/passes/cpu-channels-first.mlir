// A convolution with channels before rows and columns: the summation over channels stays, for the tap slides along the rows
// of the register tile; rows that lie two elements apart are read one by one.
// RUN: mlirstack-opt %s --mlirstack-cpu-pack='vector-bits=256' --canonicalize --cse --mlirstack-cpu-tile='vector-bits=256' --mlirstack-cpu-drop-unit-loops --canonicalize --cse | FileCheck %s --check-prefix=TILE
// RUN: mlirstack-opt %s --mlirstack-cpu-pack='vector-bits=256' --canonicalize --cse --mlirstack-cpu-tile='vector-bits=256' --mlirstack-cpu-drop-unit-loops --canonicalize --cse --mlirstack-cpu-vectorize %bufferize --mlirstack-cpu-lower-vectors --mlirstack-cpu-unroll-strided-vectors --canonicalize | FileCheck %s --check-prefix=VECTOR

// TILE-LABEL:   func.func @next(
// TILE:           linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]} ins(%{{.*}}, %{{.*}} : tensor<1x4xf32>, tensor<1x16xf32>)
// VECTOR-LABEL: func.func @next(
// VECTOR:         vector.load {{.*}} : memref<1x6x10x10xf32>, vector<4xf32>
// VECTOR-COUNT-4: vector.fma {{.*}} : vector<16xf32>
func.func @next(%x: tensor<1x6x10x10xf32>, %w: tensor<16x6x3x3xf32>, %init: tensor<1x16x8x8xf32>) -> tensor<1x16x8x8xf32> attributes {mlirstack.kernel = "convolution"} {
  %0 = linalg.conv_2d_nchw_fchw ins(%x, %w : tensor<1x6x10x10xf32>, tensor<16x6x3x3xf32>)
      outs(%init : tensor<1x16x8x8xf32>) -> tensor<1x16x8x8xf32>
  return %0 : tensor<1x16x8x8xf32>
}

// TILE-LABEL:   func.func @apart(
// TILE:           tensor.extract_slice %{{.*}}[0, 0, 0, 0] [1, 1, 1, 4] [1, 1, 1, 2] : tensor<1x1x1x7xf32> to tensor<1x4xf32>
// TILE:           linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]} ins(%{{.*}}, %{{.*}} : tensor<1x4xf32>, tensor<1x16xf32>)
// VECTOR-LABEL: func.func @apart(
// VECTOR-COUNT-4: memref.load {{.*}} : memref<1x6x17x17xf32>
// VECTOR-NOT:     vector.insert
// VECTOR-COUNT-4: vector.fma {{.*}} : vector<16xf32>
func.func @apart(%x: tensor<1x6x17x17xf32>, %w: tensor<16x6x3x3xf32>, %init: tensor<1x16x8x8xf32>) -> tensor<1x16x8x8xf32> attributes {mlirstack.kernel = "convolution"} {
  %0 = linalg.conv_2d_nchw_fchw {strides = dense<2> : vector<2xi64>}
      ins(%x, %w : tensor<1x6x17x17xf32>, tensor<16x6x3x3xf32>)
      outs(%init : tensor<1x16x8x8xf32>) -> tensor<1x16x8x8xf32>
  return %0 : tensor<1x16x8x8xf32>
}
