// The end of the table of target cuda: machine code as text, the kernel table, the launch plan.
// REQUIRES: cuda
// RUN: mlirstack-opt %s --pipeline=cuda --from=linalg --to=sass | FileCheck %s --check-prefix=SASS
// RUN: mlirstack-opt %s --pipeline=cuda --from=linalg --to=table | FileCheck %s --check-prefix=TABLE
// RUN: mlirstack-opt %s --pipeline=cuda --from=linalg --to=plan | FileCheck %s --check-prefix=PLAN

// SASS: kernel_elementwise_0
// SASS:   LDG.E
// SASS:   STG.E
// SASS:   EXIT

// TABLE: kernel_elementwise_0

// PLAN:      "name": "main"
// PLAN:      "kind": "input"
// PLAN:      "kind": "result"
// PLAN:      "kernel": "kernel_elementwise_0"
// PLAN:      "schedule": "elementwise"
#map = affine_map<(d) -> (d)>
func.func @main(%x: tensor<1000xf32>) -> tensor<1000xf32> {
  %empty = tensor.empty() : tensor<1000xf32>
  %0 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]} ins(%x : tensor<1000xf32>) outs(%empty : tensor<1000xf32>) {
  ^bb0(%a: f32, %o: f32):
    %1 = arith.mulf %a, %a : f32
    linalg.yield %1 : f32
  } -> tensor<1000xf32>
  return %0 : tensor<1000xf32>
}
