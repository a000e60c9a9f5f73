// # nvvm: NVIDIA's own LLVM
//
// For: the intrinsics of PTX, such as special registers, warp and tensor-core instructions, asynchronous copies, barriers in memory.
// Level: nvvm, the device side of llvm.
// Before: gpu and nvgpu. After: LLVM IR for NVPTX, then PTX.
// Natural here: nothing but the right instruction; what it costs was decided above.
// Try: mlirstack-translate dialect_samples/nvvm.mlir --mlir-to-llvmir | mlirstack-translate --llvmir-to-ptx --mcpu=sm_90a --mattr=+ptx83
//
// RUN: mlirstack-translate %s --mlir-to-llvmir | FileCheck %s --check-prefix=IR
// RUN: mlirstack-translate %s --mlir-to-llvmir | mlirstack-translate --llvmir-to-ptx --mcpu=sm_90a --mattr=+ptx83 | FileCheck %s --check-prefix=PTX

// One warp: a 16x8 tile of f32 from 16x16 and 16x8 tiles of f16, spread over its threads.
// IR-LABEL: define {{.*}} @mma(
// IR:         call { float, float, float, float } @llvm.nvvm.mma.m16n8k16.row.col.f32.f32
// PTX-LABEL: .func {{.*}}mma(
// PTX:         mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
llvm.func @mma(%a0: vector<2xf16>, %a1: vector<2xf16>, %a2: vector<2xf16>, %a3: vector<2xf16>,
               %b0: vector<2xf16>, %b1: vector<2xf16>, %c: f32) -> !llvm.struct<(f32, f32, f32, f32)> {
  %0 = nvvm.mma.sync A[%a0, %a1, %a2, %a3] B[%b0, %b1] C[%c, %c, %c, %c]
      {layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>, shape = #nvvm.shape<m = 16, n = 8, k = 16>}
      : (vector<2xf16>, vector<2xf16>, f32) -> !llvm.struct<(f32, f32, f32, f32)>
  llvm.return %0 : !llvm.struct<(f32, f32, f32, f32)>
}

// A copy that goes on while the thread computes, and the wait for it.
// IR-LABEL: define {{.*}} @cp_async(
// PTX-LABEL: .func cp_async(
// PTX:         cp.async.cg.shared.global
// PTX:         cp.async.commit_group
// PTX:         cp.async.wait_group 0
llvm.func @cp_async(%shared: !llvm.ptr<3>, %global: !llvm.ptr<1>) {
  nvvm.cp.async.shared.global %shared, %global, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
  nvvm.cp.async.commit.group
  nvvm.cp.async.wait.group 0
  llvm.return
}

// A barrier in shared memory, which counts threads and bytes.
// IR-LABEL: define {{.*}} @mbarrier(
// PTX-LABEL: .func mbarrier(
// PTX:         mbarrier.init.shared{{.*}}.b64
llvm.func @mbarrier(%barrier: !llvm.ptr<3>, %count: i32) {
  nvvm.mbarrier.init %barrier, %count : !llvm.ptr<3>, i32
  llvm.return
}

// The fences around a group of warpgroup matrix instructions (Hopper).
// IR-LABEL: define {{.*}} @wgmma_group(
// PTX-LABEL: .func wgmma_group(
// PTX:         wgmma.fence.sync.aligned
// PTX:         wgmma.commit_group.sync.aligned
// PTX:         wgmma.wait_group.sync.aligned {{.*}}0
llvm.func @wgmma_group() {
  nvvm.wgmma.fence.aligned
  nvvm.wgmma.commit.group.sync.aligned
  nvvm.wgmma.wait.group.sync.aligned 0
  llvm.return
}
