// From the NVVM dialect out of MLIR: one LLVM IR module of all kernels, PTX, machine code.
// REQUIRES: cuda
// RUN: mlirstack-opt %s --mlirstack-translate-kernels | FileCheck %s --check-prefix=IR
// RUN: mlirstack-opt %s --mlirstack-translate-kernels --mlirstack-compile-ptx | FileCheck %s --check-prefix=PTX
// RUN: mlirstack-opt %s --mlirstack-translate-kernels --mlirstack-compile-ptx='arch=sm_80 ptx-isa=84' | FileCheck %s --check-prefix=OLDER
// RUN: mlirstack-opt %s --mlirstack-translate-kernels --mlirstack-compile-ptx --mlirstack-assemble-cubin -o %t.cubin && %python -c 'print(open(r"%t.cubin", "rb").read(4))' | FileCheck %s --check-prefix=CUBIN
// RUN: mlirstack-opt %s --mlirstack-translate-kernels --mlirstack-compile-ptx --mlirstack-assemble-cubin --mlirstack-disassemble-cubin | FileCheck %s --check-prefix=SASS
// RUN: not mlirstack-opt %s --mlirstack-translate-kernels --mlirstack-compile-ptx --mlirstack-assemble-cubin --mlirstack-disassemble-cubin --mlirstack-tabulate-kernels 2>&1 | FileCheck %s --check-prefix=HOST
// RUN: not mlirstack-opt %s --mlirstack-translate-kernels --mlirstack-compile-ptx --mlirstack-assemble-cubin --mlirstack-disassemble-cubin --mlirstack-write-plan 2>&1 | FileCheck %s --check-prefix=HOST

// A helper that two kernels call by the same name.
// IR: target triple = "nvptx64-nvidia-cuda"
// IR: declare float @__nv_expf(float)
// IR: define internal float @[[HELPER:.*]](float
// IR: define ptx_kernel void @first(
// IR-SAME: byval([128 x i8]) align 64 "nvvm.grid_constant"
// IR: call float @[[HELPER]](
// IR: define internal float @[[OTHER:.*]](float
// IR-NOT: declare float @__nv_expf
// IR: define ptx_kernel void @second(
// IR: call float @[[OTHER]](
// Work of a whole warp is not copied into branches.
// IR: asm sideeffect "bar.warp.sync 0xffffffff;", ""() convergent
// IR: "nvvm.cluster_dim"="2,1,1" "nvvm.maxntid"="128"

// PTX: .version 8.3
// PTX: .target sm_90a
// PTX: .visible .entry first(
// PTX: .param .align 64 .b8 first_param_0[128]
// PTX: .maxntid 128
// PTX: .reqnctapercluster 2
// libdevice is linked and inlined.
// PTX-NOT: .extern
// PTX: ex2.approx.ftz.f32
// PTX: .visible .entry second(
// OLDER: .version 8.4
// OLDER: .target sm_80
// CUBIN: b'\x7fELF'
// SASS: .text.second
// SASS: .text.first
// SASS: MUFU.EX2
// HOST: these kernels come without a launch plan
gpu.module @first_module {
  llvm.func @__nv_expf(f32) -> f32
  llvm.func internal @helper(%x: f32) -> f32 {
    %0 = llvm.call @__nv_expf(%x) : (f32) -> f32
    llvm.return %0 : f32
  }
  llvm.func @first(
      %map: !llvm.ptr {llvm.align = 64 : i64, llvm.byval = !llvm.array<128 x i8>, nvvm.grid_constant}, %out: !llvm.ptr
  ) attributes {nvvm.kernel, nvvm.maxntid = array<i32: 128>, nvvm.cluster_dim = array<i32: 2, 1, 1>} {
    %0 = llvm.load %map : !llvm.ptr -> f32
    %1 = llvm.call @helper(%0) : (f32) -> f32
    llvm.store %1, %out : f32, !llvm.ptr
    llvm.return
  }
}
gpu.module @second_module {
  llvm.func @__nv_expf(f32) -> f32
  llvm.func internal @helper(%x: f32) -> f32 {
    %0 = llvm.fadd %x, %x : f32
    llvm.return %0 : f32
  }
  llvm.func @second(%in: f32, %out: !llvm.ptr) attributes {nvvm.kernel} {
    %0 = llvm.call @helper(%in) : (f32) -> f32
    %1 = llvm.call @__nv_expf(%0) : (f32) -> f32
    llvm.inline_asm has_side_effects "bar.warp.sync 0xffffffff;", "" : () -> ()
    llvm.store %1, %out : f32, !llvm.ptr
    llvm.return
  }
}
