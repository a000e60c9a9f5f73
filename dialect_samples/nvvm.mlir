// # nvvm: NVIDIA's own LLVM
//
// For: the intrinsics of PTX, such as special registers, warp and tensor-core instructions, asynchronous copies, barriers in memory.
// Level: nvvm, the device side of llvm.
// Before: gpu and nvgpu. After: LLVM IR for NVPTX, then PTX.
// Natural here: nothing but the right instruction; what it costs was decided above.
// Try: mlirstack-opt dialect_samples/nvvm.mlir --convert-nvvm-to-llvm | mlirstack-translate --mlir-to-llvmir | mlirstack-translate --llvmir-to-ptx --mcpu=sm_90a --mattr=+ptx83
//
// RUN: mlirstack-opt %s --convert-nvvm-to-llvm | FileCheck %s --check-prefix=ASM
// RUN: mlirstack-opt %s --convert-nvvm-to-llvm | mlirstack-translate --mlir-to-llvmir | FileCheck %s --check-prefix=IR
// RUN: mlirstack-opt %s --convert-nvvm-to-llvm | mlirstack-translate --mlir-to-llvmir | mlirstack-translate --llvmir-to-ptx --mcpu=sm_90a --mattr=+ptx83 | FileCheck %s --check-prefix=PTX

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

// One warpgroup, four warps (Hopper): a 64x8 tile of f32 from 64x16 and 16x8 tiles of f16, which stay in shared memory; a
// descriptor says where and in which order. The instruction runs on while the threads do: they fence their registers before
// it, commit what they started as a group, and wait for the group. No LLVM intrinsic stands for it, so it becomes inline
// assembly: the accumulator's four registers of a thread are results ("=f") and operands tied to them (0 to 3), the
// descriptors are 64-bit registers ("l"), and immediates ("n") say whether to add to the accumulator, the signs of A and B,
// and which of them are transposed.
// ASM-LABEL: llvm.func @wgmma(
// ASM-SAME:    %[[A:.*]]: i64, %[[B:.*]]: i64, %[[SUM:.*]]: !llvm.struct<(f32, f32, f32, f32)>)
// ASM:         nvvm.wgmma.fence.aligned
// ASM:         %[[FIRST:.*]] = llvm.extractvalue %[[SUM]][0]
// ASM:         %[[LAST:.*]] = llvm.extractvalue %[[SUM]][3]
// ASM:         %[[NEW:.*]] = llvm.inline_asm has_side_effects
// ASM-SAME:      wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {$0, $1, $2, $3}, $8, $9, p, $11,  $12, $13,  $14;
// ASM-SAME:      "=f,=f,=f,=f,0,1,2,3,l,l,n,n,n,n,n" %[[FIRST]], {{.*}}, %[[LAST]], %[[A]], %[[B]],
// ASM-NEXT:    nvvm.wgmma.commit.group.sync.aligned
// ASM-NEXT:    nvvm.wgmma.wait.group.sync.aligned 0
// ASM-NEXT:    llvm.return %[[NEW]]
// IR-LABEL: define {{.*}} @wgmma(
// IR:         call void @llvm.nvvm.wgmma.fence.sync.aligned()
// IR:         call { float, float, float, float } asm sideeffect {{.*}}wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16
// IR:         call void @llvm.nvvm.wgmma.commit_group.sync.aligned()
// PTX-LABEL: .func {{.*}}wgmma(
// PTX:         ld.param.b64 [[A:%rd[0-9]+]], [wgmma_param_0];
// PTX:         wgmma.fence.sync.aligned;
// PTX:         ld.param.b64 [[B:%rd[0-9]+]], [wgmma_param_1];
// PTX:         wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {[[R:%r[0-9]+]], {{.*}}}, [[A]], [[B]], p, 1,  1, 0,  0;
// PTX:         wgmma.commit_group.sync.aligned;
// PTX:         wgmma.wait_group.sync.aligned 0;
// PTX:         st.param.b32 [func_retval0], [[R]];
llvm.func @wgmma(%a: i64, %b: i64, %sum: !llvm.struct<(f32, f32, f32, f32)>) -> !llvm.struct<(f32, f32, f32, f32)> {
  nvvm.wgmma.fence.aligned
  %0 = nvvm.wgmma.mma_async %a, %b, %sum, #nvvm.shape<m = 64, n = 8, k = 16>,
      D [<f32>, <one>, <wrapped>], A [<f16>, <one>, <row>], B [<f16>, <one>, <col>]
      : !llvm.struct<(f32, f32, f32, f32)> -> !llvm.struct<(f32, f32, f32, f32)>
  nvvm.wgmma.commit.group.sync.aligned
  nvvm.wgmma.wait.group.sync.aligned 0
  llvm.return %0 : !llvm.struct<(f32, f32, f32, f32)>
}
