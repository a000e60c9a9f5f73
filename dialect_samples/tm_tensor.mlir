// # tm_tensor: what linalg cannot say
//
// For: operators of PyTorch that are not perfect loop nests: scan, scatter, sort, top-k, attention.
// Level: linalg.
// Before: torch. After: scf loops over memrefs.
// Natural here: little; the ops wait for their lowering to loops, or for a kernel that does them better.
// Try: mlirstack-opt dialect_samples/tm_tensor.mlir --pass-pipeline='builtin.module(func.func(tm-tensor-to-loops))'
//
// RUN: mlirstack-opt %s --pass-pipeline='builtin.module(func.func(tm-tensor-to-loops))' | FileCheck %s

// A running sum: a loop in which each element needs the one before.
// CHECK-LABEL: func.func @cumsum
// CHECK:       scf.for
// CHECK:         scf.if
// CHECK:         memref.load
// CHECK:         arith.addf
// CHECK:         memref.store
func.func @cumsum(%x: memref<8xf32>, %sums: memref<8xf32>, %last: memref<f32>) {
  tm_tensor.scan dimension(0) inclusive(true)
      ins(%x : memref<8xf32>) outs(%sums, %last : memref<8xf32>, memref<f32>) {
  ^bb0(%element: f32, %sum: f32):
    %next = arith.addf %element, %sum : f32
    tm_tensor.yield %next : f32
  }
  return
}
