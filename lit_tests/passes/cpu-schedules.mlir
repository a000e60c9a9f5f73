// The schedules of target cpu, for a machine with vectors of 256 bits.
// RUN: mlirstack-opt %s --mlirstack-cpu-tile='vector-bits=256' | FileCheck %s --check-prefix=TILE
// RUN: mlirstack-opt %s --mlirstack-cpu-tile='vector-bits=256' --mlirstack-cpu-vectorize | FileCheck %s --check-prefix=VECTOR
// RUN: mlirstack-opt %s --mlirstack-cpu-tile='vector-bits=256' --mlirstack-cpu-vectorize %bufferize --mlirstack-cpu-lower-vectors | FileCheck %s --check-prefix=LOWER
// RUN: mlirstack-opt %s --mlirstack-cpu-parallelize='threads=4' | FileCheck %s --check-prefix=PARALLEL

// A large kernel in as many pieces as there are threads.
// PARALLEL-LABEL: func.func private @kernel_elementwise_0(
// PARALLEL:         scf.forall (%{{.*}}) = (0) to (512) step (128)
// PARALLEL:           linalg.generic
// TILE-LABEL:   func.func private @kernel_elementwise_0(
// TILE:           scf.for
// TILE:             linalg.generic
// VECTOR-LABEL: func.func private @kernel_elementwise_0(
// VECTOR-NOT:     linalg.generic
// VECTOR:         vector.transfer_read
// VECTOR:         arith.addf {{.*}} : vector<
// LOWER-LABEL:  func.func private @kernel_elementwise_0(
// LOWER:          vector.{{load|transfer_read}}
// LOWER:          arith.addf {{.*}} : vector<{{8|16}}xf32>
#map = affine_map<(d0, d1) -> (d0, d1)>
func.func private @kernel_elementwise_0(%x: tensor<512x512xf32>, %out: tensor<512x512xf32>) -> tensor<512x512xf32> attributes {mlirstack.kernel = "elementwise"} {
  %0 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<512x512xf32>) outs(%out : tensor<512x512xf32>) {
  ^bb0(%a: f32, %o: f32):
    %1 = arith.addf %a, %a : f32
    linalg.yield %1 : f32
  } -> tensor<512x512xf32>
  return %0 : tensor<512x512xf32>
}
func.func @main(%x: tensor<512x512xf32>) -> tensor<512x512xf32> {
  %empty = tensor.empty() : tensor<512x512xf32>
  %0 = call @kernel_elementwise_0(%x, %empty) : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  return %0 : tensor<512x512xf32>
}
