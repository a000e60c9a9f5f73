// # shard: one tensor, many devices
//
// For: a grid of devices and how tensors are spread over it; collectives between them.
// Level: tosa and linalg.
// Before: a model with a few annotations. After: the program of one device, with communication.
// Natural here: propagating the sharding of a few tensors to all others, while operators are still whole.
// Try: mlirstack-opt dialect_samples/shard.mlir --pass-pipeline='builtin.module(func.func(sharding-propagation,shard-partition))'
//
// RUN: mlirstack-opt %s --pass-pipeline='builtin.module(func.func(sharding-propagation,shard-partition))' | FileCheck %s

// Rows over four devices: each holds a quarter.
// CHECK-LABEL: func.func @relu(
// CHECK-SAME:    tensor<4x8xf32>
// CHECK:       tosa.clamp {{.*}}tensor<4x8xf32>
shard.grid @grid(shape = 4)
func.func @relu(%x: tensor<16x8xf32>) -> tensor<16x8xf32> {
  %s = shard.sharding @grid split_axes = [[0]] : !shard.sharding
  %sx = shard.shard %x to %s : tensor<16x8xf32>
  %0 = tosa.clamp %sx {min_val = 0.0 : f32, max_val = 6.0 : f32} : (tensor<16x8xf32>) -> tensor<16x8xf32>
  %s0 = shard.shard %0 to %s : tensor<16x8xf32>
  %s1 = shard.shard %s0 to %s annotate_for_users : tensor<16x8xf32>
  return %s1 : tensor<16x8xf32>
}
