#map = {
  element = "f16", sizes = array<i64: 64, 32>, strides = array<i64: 128>, box = array<i64: 64, 8>,
  element_strides = array<i64>, lower = array<i64>, upper = array<i64>, swizzle = 128 : i64, l2_promotion = 256 : i64
}
module attributes {gpu.container_module} {
  gpu.module @kernel_0_device {
    llvm.mlir.global external @shared_memory() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>
    gpu.func @kernel_0(%map: !llvm.ptr {mlirstack.tensor_map = #map}) kernel attributes {mlirstack.schedule = "gemm_wgmma"} {
      %c0 = arith.constant 0 : i32
      %shared = llvm.mlir.addressof @shared_memory : !llvm.ptr<3>
      %target = llvm.addrspacecast %shared : !llvm.ptr<3> to !llvm.ptr<7>
      nvvm.cp.async.bulk.tensor.shared.cluster.global %target, %map, %shared, box[%c0, %c0] : !llvm.ptr<7>, !llvm.ptr
      gpu.return
    }
  }
  func.func private @kernel(%x: memref<32x64xf16>) attributes {
    mlirstack.kernel = "contraction", mlirstack.destinations = array<i64>, mlirstack.overwritten = array<i64>
  } {
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %c128 = arith.constant 128 : index
    %0 = builtin.unrealized_conversion_cast %x : memref<32x64xf16> to !llvm.ptr {mlirstack.tensor_map = #map}
    gpu.launch_func @kernel_0_device::@kernel_0 blocks in (%c4, %c1, %c1) threads in (%c128, %c1, %c1) args(%0 : !llvm.ptr)
    return
  }
}
