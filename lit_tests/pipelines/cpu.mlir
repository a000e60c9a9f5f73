// One layer through the stages of target cpu, each with what is characteristic of it.
// RUN: mlirstack-opt %s --pipeline=cpu --from=linalg --to=prepared | FileCheck %s --check-prefix=PREPARED
// RUN: mlirstack-opt %s --pipeline=cpu --from=linalg --to=fused | FileCheck %s --check-prefix=FUSED
// RUN: mlirstack-opt %s --pipeline=cpu --from=linalg --to=packed | FileCheck %s --check-prefix=PACKED
// RUN: mlirstack-opt %s --pipeline=cpu --from=linalg --to=kernels | FileCheck %s --check-prefix=KERNELS
// RUN: mlirstack-opt %s --pipeline=cpu --from=linalg --to=tiled | FileCheck %s --check-prefix=TILED
// RUN: mlirstack-opt %s --pipeline=cpu --from=linalg --to=vectorized | FileCheck %s --check-prefix=VECTORIZED
// RUN: mlirstack-opt %s --pipeline=cpu --from=linalg --to=bufferized | FileCheck %s --check-prefix=BUFFERIZED
// RUN: mlirstack-opt %s --pipeline=cpu --from=linalg --to=loops | FileCheck %s --check-prefix=LOOPS
// RUN: mlirstack-opt %s --pipeline=cpu --from=linalg --to=llvm | FileCheck %s --check-prefix=LLVM
// RUN: mlirstack-opt %s --pipeline=cpu --from=linalg --to=llvmir | FileCheck %s --check-prefix=LLVMIR
// RUN: mlirstack-opt %s --pipeline=cpu --from=linalg --to=asm | FileCheck %s --check-prefix=ASM

// What depends on parameters alone is computed once, before the first call.
// PREPARED-LABEL: func.func @prepare(
// PREPARED:         linalg.negf
// PREPARED-LABEL: func.func @main(
// PREPARED-SAME:    mlirstack.argument = 0
// PREPARED-NOT:     linalg.negf

// Bias and relu are one op behind the product.
// FUSED-LABEL: func.func @main(
// FUSED:         linalg.{{matmul|generic}}
// FUSED:         linalg.generic
// FUSED:           arith.addf
// FUSED-NEXT:      arith.maximumf
// FUSED-NOT:     linalg.generic

// PACKED: func.func @main(

// KERNELS-LABEL: func.func private @kernel_contraction_0(
// KERNELS-SAME:    mlirstack.kernel
// KERNELS-LABEL: func.func @main(
// KERNELS:         %[[OUT:.*]] = tensor.empty()
// KERNELS:         call @kernel_contraction_0({{.*}}, %[[OUT]])

// TILED-LABEL: func.func private @kernel_contraction_0(
// TILED:         scf.for

// VECTORIZED-LABEL: func.func private @kernel_contraction_0(
// VECTORIZED:         vector.contract
// VECTORIZED-NOT:     linalg.
// VECTORIZED:       func.func @main(

// BUFFERIZED-LABEL: func.func private @kernel_contraction_0(
// BUFFERIZED-SAME:    memref<4x16xf32>) attributes
// BUFFERIZED-NOT:     tensor.
// BUFFERIZED:       func.func @main({{.*}}memref<4x16xf32> {bufferize.result

// LOOPS-LABEL: func.func @prepare(
// LOOPS:         scf.for
// LOOPS-NOT:     linalg.

// LLVM:       llvm.func {{.*}}@kernel_contraction_0({{.*}}llvm.noalias
// LLVM:       llvm.func @mlirstack_main(%{{.*}}: !llvm.ptr)
// LLVM-NOT:   builtin.unrealized_conversion_cast

// LLVMIR:       @mlirstack_abi =
// LLVMIR:       define void @mlirstack_main(ptr %0)

// ASM:      kernel_contraction_0:
// ASM:        {{call|jmp}} {{.*}} ; free
// ASM:      mlirstack_main:
#map = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x16xf32> {mlirstack.parameter = "w"}, %b: tensor<16xf32> {mlirstack.parameter = "b"}) -> tensor<4x16xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<4x16xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<4x16xf32>) -> tensor<4x16xf32>
  %bias_empty = tensor.empty() : tensor<16xf32>
  %bias = linalg.negf ins(%b : tensor<16xf32>) outs(%bias_empty : tensor<16xf32>) -> tensor<16xf32>
  %product = linalg.matmul ins(%x, %w : tensor<4x8xf32>, tensor<8x16xf32>) outs(%init : tensor<4x16xf32>) -> tensor<4x16xf32>
  %sum = linalg.generic {indexing_maps = [#map, #row, #map], iterator_types = ["parallel", "parallel"]}
      ins(%product, %bias : tensor<4x16xf32>, tensor<16xf32>) outs(%empty : tensor<4x16xf32>) {
  ^bb0(%element: f32, %c: f32, %out: f32):
    %0 = arith.addf %element, %c : f32
    linalg.yield %0 : f32
  } -> tensor<4x16xf32>
  %relu = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]}
      ins(%sum : tensor<4x16xf32>) outs(%empty : tensor<4x16xf32>) {
  ^bb0(%element: f32, %out: f32):
    %0 = arith.maximumf %element, %zero : f32
    linalg.yield %0 : f32
  } -> tensor<4x16xf32>
  return %relu : tensor<4x16xf32>
}
