// A reduction of rows as a kernel of ours inside an IREE module for processors.
// REQUIRES: iree
// UNSUPPORTED: fast
// RUN: mlirstack-opt %s --pipeline=iree-cpu --from=linalg --to=regions | FileCheck %s --check-prefix=REGIONS
// RUN: mlirstack-opt %s --pipeline=iree-cpu --from=linalg --to=program | FileCheck %s --check-prefix=PROGRAM
// RUN: mlirstack-opt %s --pipeline=iree-cpu --from=linalg --to=vmfb -o %t.vmfb && %python -m zipfile -l %t.vmfb | FileCheck %s --check-prefix=VMFB

// REGIONS:     module attributes {{.*}}mlirstack.program
// REGIONS:       func.func private @kernel_region_0(
// PROGRAM:     "hal.executable.source"
// PROGRAM:         sym_name = "kernel_reduction_0"
// PROGRAM:       func.func private @mlirstack_kernel_reduction_0(memref<f32>, index, memref<f32>, index) attributes {hal.import.static, llvm.bareptr = true}
// PROGRAM:       func.func @kernel_reduction_0()
// PROGRAM:         scf.for
// PROGRAM:           func.call @mlirstack_kernel_reduction_0(
// PROGRAM:       objects = #hal.executable.objects<{#hal.executable.target<"llvm-cpu", "embedded-elf-x86_64"> = [#hal.executable.object<{path = "kernels.elf", data = {{.*}}>, #hal.executable.object<{path = "kernels.o"}>]}>
// PROGRAM:     func.func @main(
// PROGRAM:       "flow.dispatch"
// PROGRAM-SAME:    entry_points = [@mlirstack_kernels::@kernel_reduction_0]
// VMFB:        module.fb
func.func @main(%x: tensor<6x45xf32>) -> tensor<6xf32> {
  %zero = arith.constant 0xFF800000 : f32
  %empty = tensor.empty() : tensor<6xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<6xf32>) -> tensor<6xf32>
  %0 = linalg.reduce { arith.maximumf } ins(%x : tensor<6x45xf32>) outs(%init : tensor<6xf32>) dimensions = [1]
  return %0 : tensor<6xf32>
}
