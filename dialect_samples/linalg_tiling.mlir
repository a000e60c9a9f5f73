// # linalg: tiling and fusion into tiles
//
// For: the same operations on slices that fit a cache or a register file, with loops around them.
// Level: linalg.
// Before: linalg on whole tensors. After: vector.
// Natural here: tiling, and fusing producers into the loops of their consumer: an op on a slice is an op of the same name.
// Try: mlirstack-opt dialect_samples/linalg_tiling.mlir --transform-interpreter --canonicalize --cse
//
// RUN: mlirstack-opt %s --transform-interpreter --canonicalize --cse | FileCheck %s

// Tiles of the relu, and inside each the part of the product that it needs.
// CHECK-LABEL: func.func @layer(
// CHECK-SAME:    %[[A:.*]]: tensor<128x64xf32>, %[[B:.*]]: tensor<64x256xf32>
// CHECK:       scf.for %[[I:.*]] = {{.*}} step %c32
// CHECK:         scf.for %[[J:.*]] = {{.*}} step %c64
// CHECK:           tensor.extract_slice %[[A]][%[[I]], 0] [32, 64] [1, 1]
// CHECK:           tensor.extract_slice %[[B]][0, %[[J]]] [64, 64] [1, 1]
// CHECK:           %[[TILE:.*]] = linalg.matmul {{.*}} -> tensor<32x64xf32>
// CHECK:           linalg.max ins(%[[TILE]]
// CHECK:           tensor.insert_slice
func.func @layer(%a: tensor<128x64xf32>, %b: tensor<64x256xf32>, %zero: tensor<128x256xf32>) -> tensor<128x256xf32> {
  %product = linalg.matmul ins(%a, %b : tensor<128x64xf32>, tensor<64x256xf32>)
      outs(%zero : tensor<128x256xf32>) -> tensor<128x256xf32>
  %empty = tensor.empty() : tensor<128x256xf32>
  %relu = linalg.max ins(%product, %zero : tensor<128x256xf32>, tensor<128x256xf32>)
      outs(%empty : tensor<128x256xf32>) -> tensor<128x256xf32>
  return %relu : tensor<128x256xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) {
    %relu = transform.structured.match ops{["linalg.max"]} in %root : (!transform.any_op) -> !transform.any_op
    %fused, %loops:2 = transform.structured.fuse %relu tile_sizes [32, 64]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)
    transform.yield
  }
}
