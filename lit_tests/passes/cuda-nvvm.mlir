// What kernels need beyond the upstream passes: tensor maps by value, cluster size, register limits, internal helpers.
// RUN: mlirstack-opt %s --mlirstack-nvvm-prepare | FileCheck %s --check-prefix=PREPARED
// RUN: mlirstack-opt %s --mlirstack-nvvm-prepare --convert-gpu-to-nvvm='index-bitwidth=64 use-bare-ptr-memref-call-conv=true' --reconcile-unrealized-casts --mlirstack-nvvm-finish | FileCheck %s
// RUN: mlirstack-opt %s --mlirstack-nvvm-prepare --convert-gpu-to-nvvm='index-bitwidth=64 use-bare-ptr-memref-call-conv=true' --reconcile-unrealized-casts --mlirstack-nvvm-finish='contract=false' | FileCheck %s --check-prefix=STRICT

// PREPARED: gpu.func @copy
// PREPARED-SAME: mlirstack.tensor_maps = [{box = array<i64: 64, 32>}, unit]

// CHECK-LABEL: llvm.func internal @helper(
// CHECK: llvm.fmul {{.*}} {fastmathFlags = #llvm.fastmath<contract>}
// STRICT: llvm.fmul %{{.*}}, %{{.*}} : f32
// CHECK-LABEL: llvm.func @copy(
// CHECK-SAME: %{{.*}}: !llvm.ptr {llvm.align = 64 : i64, llvm.byval = !llvm.array<128 x i8>, mlirstack.tensor_map = {box = array<i64: 64, 32>}, nvvm.grid_constant}
// CHECK-SAME: %{{.*}}: !llvm.ptr {llvm.align = 16 : i64, llvm.noalias}
// CHECK-NOT: mlirstack.tensor_maps
// CHECK-SAME: nvvm.cluster_dim = array<i32: 2, 1, 1>
// CHECK-SAME: nvvm.kernel
// CHECK-SAME: nvvm.maxnreg = 168 : i32
// CHECK-SAME: nvvm.maxntid = array<i32: 128, 1, 1>
// CHECK-SAME: nvvm.minctasm = 2 : i32
gpu.module @kernels {
  gpu.func @helper(%x: f32) -> f32 {
    %0 = llvm.fmul %x, %x : f32
    gpu.return %0 : f32
  }
  gpu.func @copy(
      %map: !llvm.ptr {mlirstack.tensor_map = {box = array<i64: 64, 32>}},
      %out: !llvm.ptr {llvm.align = 16 : i64, llvm.noalias}
  ) kernel attributes {
      known_block_size = array<i32: 128, 1, 1>, mlirstack.cluster = 2 : i64, mlirstack.min_blocks = 2 : i64,
      mlirstack.max_registers = 168 : i64
  } {
    gpu.return
  }
}
