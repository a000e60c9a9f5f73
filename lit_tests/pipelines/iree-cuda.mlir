// An elementwise op as a kernel of ours inside an IREE module.
// REQUIRES: iree, cuda
// UNSUPPORTED: fast
// RUN: mlirstack-opt %s --pipeline=iree-cuda --from=linalg --to=kernels | FileCheck %s --check-prefix=KERNELS
// RUN: mlirstack-opt %s --pipeline=iree-cuda --from=linalg --to=program | FileCheck %s --check-prefix=PROGRAM
// RUN: mlirstack-opt %s --pipeline=iree-cuda --from=linalg --to=iree-flow | FileCheck %s --check-prefix=FLOW
// RUN: mlirstack-opt %s --pipeline=iree-cuda --from=linalg --to=vmfb -o %t.vmfb && %python -m zipfile -l %t.vmfb | FileCheck %s --check-prefix=VMFB

// KERNELS:     module attributes {{.*}}mlirstack.program
// KERNELS:       func.func private @kernel_elementwise_0(
// PROGRAM:     "hal.executable.source"
// PROGRAM:       "hal.executable.export"
// PROGRAM:         sym_name = "kernel_elementwise_0"
// PROGRAM-SAME:    workgroup_size = [
// PROGRAM:       objects = #hal.executable.objects<{#hal.executable.target<"cuda", "cuda-nvptx-fb"> = [#hal.executable.object<{path = "kernels.fatbin"
// PROGRAM:     func.func @main(
// PROGRAM:       "flow.dispatch"
// PROGRAM-SAME:    entry_points = [@mlirstack_kernels::@kernel_elementwise_0]
// FLOW:        hal.executable.source private @mlirstack_kernels
// FLOW:        flow.dispatch @mlirstack_kernels::@kernel_elementwise_0[
// VMFB:        module.fb
#map = affine_map<(d0) -> (d0)>
func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {
  %empty = tensor.empty() : tensor<64xf32>
  %0 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf32>) outs(%empty : tensor<64xf32>) {
  ^bb0(%a: f32, %out: f32):
    %1 = math.exp %a : f32
    linalg.yield %1 : f32
  } -> tensor<64xf32>
  return %0 : tensor<64xf32>
}
