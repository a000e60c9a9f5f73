// RUN: mlirstack-opt %s --mlirstack-overlap-launches | FileCheck %s
// RUN: mlirstack-opt %s --pass-pipeline='builtin.module(mlirstack-overlap-launches{arch=sm_80})' | FileCheck %s --check-prefix=AMPERE

// Index arithmetic is done while the kernel before this one ends; memory is touched after it has ended.
// CHECK-LABEL: gpu.func @scale(
// CHECK-SAME:    mlirstack.overlaps
// CHECK:         nvvm.read.ptx.sreg.tid.x
// CHECK:         llvm.getelementptr
// CHECK:         llvm.inline_asm has_side_effects "griddepcontrol.wait;", "~{memory}"
// CHECK:         llvm.inline_asm has_side_effects "griddepcontrol.launch_dependents;", "~{memory}"
// CHECK:         llvm.load
// A long product wants all multiprocessors for itself.
// CHECK-LABEL: gpu.func @product(
// CHECK-NOT:     mlirstack.overlaps
// CHECK-NOT:     griddepcontrol
// AMPERE-NOT:  griddepcontrol
module attributes {gpu.container_module} {
  gpu.module @device {
    gpu.func @scale(%p: !llvm.ptr<1>) kernel {
      %thread = nvvm.read.ptx.sreg.tid.x : i32
      %place = llvm.getelementptr %p[%thread] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
      %x = llvm.load %place : !llvm.ptr<1> -> f32
      %y = arith.addf %x, %x : f32
      llvm.store %y, %place : f32, !llvm.ptr<1>
      gpu.return
    }
    gpu.func @product(%p: !llvm.ptr<1>) kernel attributes {mlirstack.alone} {
      %x = llvm.load %p : !llvm.ptr<1> -> f32
      llvm.store %x, %p : f32, !llvm.ptr<1>
      gpu.return
    }
  }
}
