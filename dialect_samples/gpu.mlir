// # gpu: grids, blocks, threads
//
// For: kernels and their launch, memory of a workgroup, barriers, shuffles: what all GPUs have in common.
// Level: gpu.
// Before: scf.forall and scf.parallel mapped to blocks and threads. After: nvvm (or rocdl, spirv) inside, driver calls outside.
// Natural here: outlining kernels, sinking constants into them, reductions over a workgroup, removing needless barriers.
// Try: mlirstack-opt dialect_samples/gpu.mlir --gpu-kernel-outlining
//
// RUN: mlirstack-opt %s --gpu-kernel-outlining | FileCheck %s --check-prefix=OUTLINE
// RUN: mlirstack-opt %s --gpu-kernel-outlining | mlirstack-opt --pass-pipeline='builtin.module(gpu.module(convert-gpu-to-nvvm{use-bare-ptr-memref-call-conv=1},convert-arith-to-llvm,reconcile-unrealized-casts))' | FileCheck %s --check-prefix=NVVM

// The body of a launch becomes a function of its own, in a module for the device.
// OUTLINE-LABEL: func.func @scale(
// OUTLINE:       gpu.launch_func @[[MODULE:.*]]::@[[KERNEL:.*]] blocks in
// OUTLINE:       gpu.module @[[MODULE]]
// OUTLINE:       gpu.func @[[KERNEL]]({{.*}}) kernel
// OUTLINE:         gpu.block_id x
// OUTLINE:         gpu.thread_id x

// NVVM: llvm.func @{{.*}}(%{{.*}}: !llvm.ptr, %{{.*}}: f32){{.*}}nvvm.kernel
// NVVM:   nvvm.read.ptx.sreg.ctaid.x
// NVVM:   nvvm.read.ptx.sreg.tid.x
func.func @scale(%x: memref<1024xf32>, %factor: f32) {
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %c128 = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c8, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) {
    %block = arith.muli %bx, %sx : index
    %i = arith.addi %block, %tx : index
    %element = memref.load %x[%i] : memref<1024xf32>
    %scaled = arith.mulf %element, %factor : f32
    memref.store %scaled, %x[%i] : memref<1024xf32>
    gpu.terminator
  }
  return
}
