// An elementwise op through IREE's phases.
// REQUIRES: iree
// UNSUPPORTED: fast
// RUN: mlirstack-opt %s --pipeline=iree-cpu --from=linalg --to=prepared | FileCheck %s --check-prefix=PREPARED
// RUN: mlirstack-opt %s --pipeline=iree-cpu --from=linalg --to=iree-input | FileCheck %s --check-prefix=INPUT
// RUN: mlirstack-opt %s --pipeline=iree-cpu --from=linalg --to=iree-abi | FileCheck %s --check-prefix=ABI
// RUN: mlirstack-opt %s --pipeline=iree-cpu --from=linalg --to=iree-preprocessing | FileCheck %s --check-prefix=ABI
// RUN: mlirstack-opt %s --pipeline=iree-cpu --from=linalg --to=iree-global-optimization | FileCheck %s --check-prefix=GLOBAL
// RUN: mlirstack-opt %s --pipeline=iree-cpu --from=linalg --to=iree-dispatch-creation | FileCheck %s --check-prefix=DISPATCH
// RUN: mlirstack-opt %s --pipeline=iree-cpu --from=linalg --to=iree-flow | FileCheck %s --check-prefix=FLOW
// RUN: mlirstack-opt %s --pipeline=iree-cpu --from=linalg --to=iree-stream | FileCheck %s --check-prefix=STREAM
// RUN: mlirstack-opt %s --pipeline=iree-cpu --from=linalg --to=iree-executable-sources | FileCheck %s --check-prefix=SOURCES
// RUN: mlirstack-opt %s --pipeline=iree-cpu --from=linalg --to=iree-executable-configurations | FileCheck %s --check-prefix=CONFIGURATIONS
// RUN: mlirstack-opt %s --pipeline=iree-cpu --from=linalg --to=iree-executable-targets | FileCheck %s --check-prefix=TARGETS
// RUN: mlirstack-opt %s --pipeline=iree-cpu --from=linalg --to=iree-hal | FileCheck %s --check-prefix=HAL
// RUN: mlirstack-opt %s --pipeline=iree-cpu --from=linalg --to=iree-vm | FileCheck %s --check-prefix=VM
// RUN: mlirstack-opt %s --pipeline=iree-cpu --from=linalg --to=vmfb -o %t.vmfb && %python -m zipfile -l %t.vmfb | FileCheck %s --check-prefix=VMFB

// PREPARED:       linalg.generic
// INPUT:          linalg.generic
// ABI:            hal.tensor.import
// GLOBAL:         linalg.generic
// DISPATCH:       flow.dispatch.{{region|workgroups}}
// FLOW:           flow.executable
// FLOW:           flow.dispatch @
// STREAM:         stream.cmd.dispatch
// SOURCES:        hal.executable
// CONFIGURATIONS: hal.executable
// TARGETS:        llvm.func @
// HAL:            hal.command_buffer
// VM:             vm.module
// VMFB:           module.fb
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
