// One layer through the stages of target cuda, each with what is characteristic of it.
// RUN: mlirstack-opt %s --pipeline=cuda --from=linalg --to=prepared | FileCheck %s --check-prefix=PREPARED
// RUN: mlirstack-opt %s --pipeline=cuda --from=linalg --to=fused | FileCheck %s --check-prefix=FUSED
// RUN: mlirstack-opt %s --pipeline=cuda --from=linalg --to=flattened | FileCheck %s --check-prefix=FLATTENED
// RUN: mlirstack-opt %s --pipeline=cuda --from=linalg --to=dispatches | FileCheck %s --check-prefix=DISPATCHES
// RUN: mlirstack-opt %s --pipeline=cuda --from=linalg --to=bufferized | FileCheck %s --check-prefix=BUFFERIZED
// RUN: mlirstack-opt %s --pipeline=cuda --from=linalg --to=mapped | FileCheck %s --check-prefix=MAPPED
// RUN: mlirstack-opt %s --pipeline=cuda --from=linalg --to=gpu | FileCheck %s --check-prefix=GPU
// RUN: mlirstack-opt %s --pipeline=cuda --from=linalg --to=nvvm | FileCheck %s --check-prefix=NVVM
// RUN: mlirstack-opt %s --pipeline=cuda --from=linalg --to=llvmir | FileCheck %s --check-prefix=LLVMIR
// RUN: mlirstack-opt %s --pipeline=cuda --from=linalg --to=ptx | FileCheck %s --check-prefix=PTX

// The weight is read as it is stored: nothing is left to prepare.
// PREPARED-NOT:  linalg.transpose
// PREPARED:      linalg.matmul indexing_maps

// FUSED-LABEL: func.func @main(
// FUSED:         tensor.expand_shape
// FUSED:         arith.addf

// Bias and residual are added to the rows of the product; only what is returned is reshaped.
// FLATTENED-LABEL: func.func @main(
// FLATTENED:         linalg.generic
// FLATTENED-NOT:     tensor.expand_shape
// FLATTENED:         linalg.generic
// FLATTENED:         tensor.expand_shape

// DISPATCHES-LABEL: func.func private @kernel_contraction_0(
// DISPATCHES-SAME:    mlirstack.kernel = "contraction", mlirstack.schedule = {
// DISPATCHES:         arith.mulf
// DISPATCHES:         arith.addf
// DISPATCHES-LABEL: func.func @main(
// DISPATCHES-COUNT-1: call @kernel

// BUFFERIZED-NOT:   tensor<
// BUFFERIZED:       func.func @main({{.*}} {bufferize.result})

// MAPPED:       gpu.func @kernel_contraction_0({{.*}} kernel
// MAPPED:       func.func private @kernel_contraction_0(
// MAPPED:         gpu.launch_func @kernel_contraction_0_device::@kernel_contraction_0

// GPU:       func.func @main(
// GPU-NOT:     call
// GPU:         gpu.launch_func @kernel_contraction_0_device::@kernel_contraction_0

// NVVM:       llvm.func @kernel_contraction_0({{.*}}nvvm.kernel
// NVVM-NOT:   scf.

// LLVMIR: define ptx_kernel void @kernel_contraction_0(

// PTX: .visible .entry kernel_contraction_0(
#map = affine_map<(b, s, d) -> (b, s, d)>
#bias = affine_map<(b, s, d) -> (d)>
func.func @main(%x: tensor<32x64xf32>, %w: tensor<96x64xf32> {mlirstack.parameter = "w"}, %b: tensor<96xf32> {mlirstack.parameter = "b"}, %r: tensor<2x16x96xf32>) -> tensor<2x16x96xf32> {
  %zero = arith.constant 0.0 : f32
  %turned = tensor.empty() : tensor<64x96xf32>
  %t = linalg.transpose ins(%w : tensor<96x64xf32>) outs(%turned : tensor<64x96xf32>) permutation = [1, 0]
  %empty = tensor.empty() : tensor<32x96xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<32x96xf32>) -> tensor<32x96xf32>
  %y = linalg.matmul ins(%x, %t : tensor<32x64xf32>, tensor<64x96xf32>) outs(%init : tensor<32x96xf32>) -> tensor<32x96xf32>
  %expanded = tensor.expand_shape %y [[0, 1], [2]] output_shape [2, 16, 96] : tensor<32x96xf32> into tensor<2x16x96xf32>
  %out = tensor.empty() : tensor<2x16x96xf32>
  %0 = linalg.generic {indexing_maps = [#map, #bias, #map, #map], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%expanded, %b, %r : tensor<2x16x96xf32>, tensor<96xf32>, tensor<2x16x96xf32>) outs(%out : tensor<2x16x96xf32>) {
  ^bb0(%a: f32, %c: f32, %d: f32, %o: f32):
    %1 = arith.addf %a, %c : f32
    %2 = arith.addf %1, %d : f32
    linalg.yield %2 : f32
  } -> tensor<2x16x96xf32>
  return %0 : tensor<2x16x96xf32>
}
