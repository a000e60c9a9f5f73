// # nvgpu: NVIDIA's instructions on MLIR's types
//
// For: tensor cores, asynchronous copies and barriers on memrefs and vectors, before they are registers and addresses.
// Level: nvgpu, between vector and nvvm.
// Before: vector and gpu. After: nvvm.
// Natural here: pipelining of copies against computation, swizzling of shared memory against bank conflicts.
// Try: mlirstack-opt dialect_samples/nvgpu.mlir --convert-nvgpu-to-nvvm
//
// RUN: mlirstack-opt %s --convert-nvgpu-to-nvvm | FileCheck %s --check-prefix=NVVM
// RUN: mlirstack-opt %s --nvgpu-optimize-shared-memory | FileCheck %s --check-prefix=SWIZZLE

// The fragment of a warp: each thread holds a vector, which becomes registers.
// NVVM-LABEL: func.func @tensor_core(
// NVVM:       nvvm.mma.sync A[%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}] B[%{{.*}}, %{{.*}}] C[
// NVVM-SAME:    shape = #nvvm.shape<m = 16, n = 8, k = 16>
func.func @tensor_core(%a: vector<4x2xf16>, %b: vector<2x2xf16>, %c: vector<2x2xf32>) -> vector<2x2xf32> {
  %d = nvgpu.mma.sync (%a, %b, %c) {mmaShape = [16, 8, 16]} : (vector<4x2xf16>, vector<2x2xf16>, vector<2x2xf32>) -> vector<2x2xf32>
  return %d : vector<2x2xf32>
}

// Global to shared memory without registers, while the thread goes on.
// NVVM-LABEL: func.func @async_copy(
// NVVM:       nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 16, cache =  cg
// NVVM:       nvvm.cp.async.commit.group
// NVVM:       nvvm.cp.async.wait.group 0
// The column in shared memory is mixed with the row: no two rows of a fragment in one bank.
// SWIZZLE-LABEL: func.func @async_copy(
// SWIZZLE:       arith.xori
// SWIZZLE:       nvgpu.device_async_copy
func.func @async_copy(%global: memref<128x64xf16>, %i: index, %j: index) -> vector<4x2xf16> {
  %shared = memref.alloc() : memref<128x64xf16, #gpu.address_space<workgroup>>
  %token = nvgpu.device_async_copy %global[%i, %j], %shared[%i, %j], 8 {bypassL1}
      : memref<128x64xf16> to memref<128x64xf16, #gpu.address_space<workgroup>>
  %group = nvgpu.device_async_create_group %token
  nvgpu.device_async_wait %group {numGroups = 0 : i32}
  gpu.barrier
  %fragment = nvgpu.ldmatrix %shared[%i, %j] {numTiles = 4 : i32, transpose = false}
      : memref<128x64xf16, #gpu.address_space<workgroup>> -> vector<4x2xf16>
  return %fragment : vector<4x2xf16>
}
