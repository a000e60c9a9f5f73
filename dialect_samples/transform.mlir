// # transform: the schedule as a program
//
// For: saying which op is to be tiled, fused or vectorised and with which sizes, in IR that is checked like any other.
// Level: beside the payload, at linalg and vector.
// Before: a schedule written by hand, by a program or by a search. After: nothing: it is interpreted and gone.
// Natural here: whatever depends on the one kernel at hand. A pass decides for all programs, a schedule for this one.
// Try: mlirstack-opt dialect_samples/transform.mlir --transform-interpreter
//
// RUN: mlirstack-opt %s --transform-interpreter | FileCheck %s
// RUN: mlirstack-opt %s --transform-interpreter='entry-point=unroll' | FileCheck %s --check-prefix=UNROLL

// CHECK-LABEL: func.func @sum(
// CHECK:       scf.forall (%{{.*}}) in (4)
// CHECK:         linalg.add ins({{.*}} : tensor<16xf32>, tensor<16xf32>)
// CHECK:       {mapping = [#gpu.block<x>]}
// UNROLL-LABEL:   func.func @sum(
// UNROLL:         scf.for {{.*}} step %c32
// UNROLL-COUNT-2: linalg.add ins({{.*}} : tensor<16xf32>, tensor<16xf32>)
func.func @sum(%x: tensor<64xf32>, %y: tensor<64xf32>) -> tensor<64xf32> {
  %empty = tensor.empty() : tensor<64xf32>
  %0 = linalg.add ins(%x, %y : tensor<64xf32>, tensor<64xf32>) outs(%empty : tensor<64xf32>) -> tensor<64xf32>
  return %0 : tensor<64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op) {
    %add = transform.structured.match ops{["linalg.add"]} in %root : (!transform.any_op) -> !transform.any_op
    %tiled, %forall = transform.structured.tile_using_forall %add tile_sizes [16] (mapping = [#gpu.block<x>])
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
  transform.named_sequence @unroll(%root: !transform.any_op) {
    %add = transform.structured.match ops{["linalg.add"]} in %root : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_for %add tile_sizes [16]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.loop.unroll %loop {factor = 2} : !transform.any_op
    transform.yield
  }
}
