// The stages of --schedule transform, one after the other, on one product of matrices.

// RUN: mlirstack-opt %s --mlirstack-transform-blocks -o %t.tiled.mlir
// RUN: FileCheck %s --check-prefix=BLOCKS --input-file=%t.tiled.mlir
// BLOCKS-LABEL: func.func @product
// BLOCKS:       scf.forall (%{{.*}}, %{{.*}}) in (2, 1)
// BLOCKS:         linalg.fill {{.*}} -> tensor<128x128xf32>
// BLOCKS:         scf.for
// BLOCKS:           linalg.generic {{.*}} ins({{.*}} : tensor<128x32xf16>, tensor<32x128xf16>)
// BLOCKS:       mapping = [#gpu.block<y>, #gpu.block<x>]
// BLOCKS-LABEL: func.func @other
// BLOCKS-NOT:   scf.forall

// RUN: mlirstack-opt %t.tiled.mlir \
// RUN:   --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" \
// RUN:   --drop-equivalent-buffer-results --canonicalize --cse --mlirstack-transform-share \
// RUN:   --canonicalize --cse -o %t.shared.mlir
// RUN: FileCheck %s --check-prefix=SHARE --input-file=%t.shared.mlir
// SHARE-LABEL: func.func @product
// SHARE-DAG:   memref.alloc() : memref<128x32xf16, #gpu.address_space<workgroup>>
// SHARE-DAG:   memref.alloc() : memref<32x128xf16, #gpu.address_space<workgroup>>
// SHARE:       scf.for
// SHARE-COUNT-2: memref.copy {{.*}} #gpu.address_space<workgroup>>
// SHARE:         linalg.generic {{.*}} ins({{.*}} : memref<128x32xf16, #gpu.address_space<workgroup>>

// RUN: mlirstack-opt %t.shared.mlir -p 'builtin.module(func.func(refback-munge-memref-copy),canonicalize,cse)' | \
// RUN: mlirstack-opt --mlirstack-transform-threads --canonicalize --cse -o %t.threads.mlir
// RUN: FileCheck %s --check-prefix=THREADS --input-file=%t.threads.mlir
// THREADS-LABEL: func.func @product
// THREADS:       scf.forall {{.*}} in (32, 4)
// THREADS:       vector<1x8xf16>
// THREADS:       #gpu.thread<linear_dim_1>
// THREADS:       scf.forall {{.*}} in (2, 2)
// THREADS:       #gpu.warp<linear_dim_1>

// RUN: mlirstack-opt %t.threads.mlir --mlirstack-transform-launch --canonicalize --cse -o %t.launched.mlir
// RUN: FileCheck %s --check-prefix=LAUNCH --input-file=%t.launched.mlir
// LAUNCH-LABEL: func.func @product
// LAUNCH:       gpu.launch blocks({{.*}}) in (%{{.*}} = %c1, %{{.*}} = %c2, %{{.*}} = %c1) threads
// LAUNCH-NOT:   scf.forall

// RUN: mlirstack-opt %t.launched.mlir -p 'builtin.module(func.func(fold-memref-alias-ops),canonicalize,cse,loop-invariant-code-motion)' | \
// RUN: mlirstack-opt --mlirstack-transform-contract --loop-invariant-code-motion --canonicalize --cse -o %t.contracted.mlir
// RUN: FileCheck %s --check-prefix=CONTRACT --input-file=%t.contracted.mlir
// CONTRACT-LABEL: func.func @product
// CONTRACT-COUNT-64: vector.contract {{.*}} vector<16x16xf16>, vector<16x8xf16> into vector<16x8xf32>

// RUN: mlirstack-opt %t.contracted.mlir --mlirstack-hoist-accumulators --canonicalize --cse -o %t.hoisted.mlir
// RUN: FileCheck %s --check-prefix=HOIST --input-file=%t.hoisted.mlir
// HOIST-LABEL: func.func @product
// HOIST:       scf.for {{.*}} iter_args({{.*}}) -> (vector<16x8xf32>
// HOIST-NOT:   vector.transfer_write {{.*}} memref<256x128xf32>
// HOIST:       scf.yield
// HOIST-COUNT-32: vector.transfer_write {{.*}} memref<256x128xf32>

// RUN: mlirstack-opt %t.hoisted.mlir --mlirstack-sink-shared-buffers -o %t.sunk.mlir
// RUN: FileCheck %s --check-prefix=SINK --input-file=%t.sunk.mlir
// SINK-LABEL: func.func @product
// SINK:       gpu.launch
// SINK-COUNT-2: memref.alloc() : {{.*}} #gpu.address_space<workgroup>>
// SINK:       scf.for
// SINK-COUNT-1: gpu.barrier
// SINK-NOT:   gpu.barrier
// SINK:       scf.yield

// RUN: mlirstack-opt %t.sunk.mlir --mlirstack-transform-multibuffer --canonicalize --cse -o %t.buffers.mlir
// RUN: FileCheck %s --check-prefix=BUFFERS --input-file=%t.buffers.mlir
// BUFFERS-DAG: memref.alloc() : memref<3x128x32xf16, #gpu.address_space<workgroup>>
// BUFFERS-DAG: memref.alloc() : memref<3x32x128xf16, #gpu.address_space<workgroup>>

// RUN: mlirstack-opt %t.buffers.mlir -p 'builtin.module(func.func(fold-memref-alias-ops),canonicalize,cse, \
// RUN:   func.func(convert-vector-to-gpu{use-nvgpu=true}),canonicalize,cse)' | \
// RUN: mlirstack-opt --mlirstack-transform-pipeline --canonicalize --cse -o %t.pipelined.mlir
// RUN: FileCheck %s --check-prefix=PIPELINE --input-file=%t.pipelined.mlir
// PIPELINE-LABEL: func.func @product
// PIPELINE-COUNT-2: nvgpu.device_async_create_group
// PIPELINE:       scf.for
// PIPELINE:       nvgpu.device_async_wait {{.*}} {numGroups = 1 : i32}
// PIPELINE-NEXT:  gpu.barrier
// PIPELINE-COUNT-64: nvgpu.mma.sync
// PIPELINE:       nvgpu.device_async_create_group

// RUN: mlirstack-opt %t.pipelined.mlir --gpu-kernel-outlining --mlirstack-shared-globals --mlirstack-label-kernels \
// RUN:   --canonicalize | \
// RUN: FileCheck %s --check-prefix=GLOBALS
// GLOBALS:      gpu.module
// GLOBALS-DAG:    memref.global "private" @shared_{{.}} : memref<3x128x32xf16, #gpu.address_space<workgroup>> {alignment = 128 : i64}
// GLOBALS-DAG:    memref.global "private" @shared_{{.}} : memref<3x32x128xf16, #gpu.address_space<workgroup>> {alignment = 128 : i64}
// GLOBALS:        gpu.func @product_kernel({{.*}} mlirstack.schedule = "transform"
// GLOBALS-NOT:    memref.alloc

func.func @product(%a: tensor<256x64xf16>, %b: tensor<64x128xf16>, %c: tensor<256x128xf32>) -> tensor<256x128xf32>
    attributes {mlirstack.kernel = "contraction", mlirstack.schedule = {name = "transform"}} {
  %zero = arith.constant 0.0 : f32
  %filled = linalg.fill ins(%zero : f32) outs(%c : tensor<256x128xf32>) -> tensor<256x128xf32>
  %product = linalg.generic {
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<256x64xf16>, tensor<64x128xf16>) outs(%filled : tensor<256x128xf32>) {
  ^bb0(%x: f16, %y: f16, %sum: f32):
    %wide_x = arith.extf %x : f16 to f32
    %wide_y = arith.extf %y : f16 to f32
    %term = arith.mulf %wide_x, %wide_y : f32
    %next = arith.addf %sum, %term : f32
    linalg.yield %next : f32
  } -> tensor<256x128xf32>
  return %product : tensor<256x128xf32>
}

func.func @other(%x: tensor<8xf32>) -> tensor<8xf32>
    attributes {mlirstack.kernel = "elementwise", mlirstack.schedule = {name = "general"}} {
  return %x : tensor<8xf32>
}
