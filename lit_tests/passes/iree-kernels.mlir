// Kernels that IREE launches: the program set aside, tensor maps made by the device, parameters in IREE's order.
// RUN: mlirstack-opt %S/Inputs/iree-program.mlir --mlirstack-iree-split | FileCheck %s --check-prefix=SPLIT
// RUN: mlirstack-opt %s --mlirstack-iree-bind | FileCheck %s --check-prefix=BIND
// RUN: mlirstack-opt %S/Inputs/iree-tensor-maps.mlir --mlirstack-iree-tensor-maps --canonicalize | FileCheck %s --check-prefix=MAPS

// The kernel stays; the program rides along, with what @prepare did.  An odd slice is copied first.
// SPLIT:       module attributes {mlirstack.program = dense<
// SPLIT:         func.func private @kernel_elementwise_0(
// SPLIT-SAME:      mlirstack.destinations = array<i64: 1>
// SPLIT-SAME:      mlirstack.overwritten = array<i64: 1>
// SPLIT:         func.func private @kernel_unaligned_0(
// SPLIT-SAME:      mlirstack.destinations = array<i64: 1>
// SPLIT:           bufferization.materialize_in_destination
// SPLIT-NOT:     @main
// SPLIT-NOT:     @prepare

// What is read, then memory of its own, then results; 64-bit numbers as two words.
// BIND:        gpu.func @kernel_0(%[[READ:.*]]: !llvm.ptr, %[[OWN:.*]]: !llvm.ptr, %[[RESULT:.*]]: !llvm.ptr, %[[LOW:.*]]: i32, %[[HIGH:.*]]: i32, %[[SCALE:.*]]: f32)
// BIND:          arith.shli
// BIND:          llvm.store %[[SCALE]], %[[RESULT]]
// BIND:          llvm.load %[[READ]]
// BIND:        func.func @kernel(
// BIND-SAME:     mlirstack.abi = "kernel(a0: memref<8xf32>, a1: index, a2: memref<8xf32>) outs() returned() order()"
// BIND:          gpu.launch_func {{.*}} args(%{{.*}} : !llvm.ptr, %{{.*}} : !llvm.ptr, %{{.*}} : !llvm.ptr, %{{.*}} : i32, %{{.*}} : i32, %{{.*}} : f32)

// Every block makes its map in 128 bytes of its own before it copies.
// MAPS:      gpu.func @kernel_0(%[[BASE:.*]]: !llvm.ptr, %[[MAPS:.*]]: !llvm.ptr)
// MAPS:        nvvm.tensormap.replace field = global_address
// MAPS:        nvvm.tensormap.replace field = swizzle_mode, new_value = #nvvm.tensormap_swizzle_mode<b128>
// MAPS:        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [$0], [$1], 128;"
// MAPS-NOT:    nvvm.fence.proxy {kind
// MAPS:        gpu.barrier
// MAPS:        nvvm.fence.proxy.acquire
// MAPS:        nvvm.cp.async.bulk.tensor
// MAPS:      func.func private @kernel(
// MAPS:        memref.alloc() : memref<512xi8>
// MAPS:        dynamic_shared_memory_size
// MAPS-NOT:    mlirstack.tensor_map

module attributes {gpu.container_module} {
  gpu.module @kernel_0_device {
    gpu.func @kernel_0(%result: !llvm.ptr, %n: index, %scale: f32, %own: !llvm.ptr, %x: !llvm.ptr) kernel {
      llvm.store %scale, %result : f32, !llvm.ptr
      %0 = llvm.load %x : !llvm.ptr -> f32
      llvm.store %0, %own : f32, !llvm.ptr
      %1 = arith.index_cast %n : index to i64
      llvm.store %1, %own : i64, !llvm.ptr
      gpu.return
    }
  }
  func.func private @kernel(%x: memref<8xf32>, %n: index, %result: memref<8xf32>) attributes {
    mlirstack.kernel = "elementwise", mlirstack.destinations = array<i64: 2>, mlirstack.overwritten = array<i64: 2>
  } {
    %c1 = arith.constant 1 : index
    %scale = arith.constant 2.0 : f32
    %own = memref.alloc() : memref<8xf32>
    %0 = builtin.unrealized_conversion_cast %result : memref<8xf32> to !llvm.ptr
    %1 = builtin.unrealized_conversion_cast %own : memref<8xf32> to !llvm.ptr
    %2 = builtin.unrealized_conversion_cast %x : memref<8xf32> to !llvm.ptr
    gpu.launch_func @kernel_0_device::@kernel_0 blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
        args(%0 : !llvm.ptr, %n : index, %scale : f32, %1 : !llvm.ptr, %2 : !llvm.ptr)
    return
  }
}
