// RUN: mlirstack-opt %s --pass-pipeline='builtin.module(func.func(tm-tensor-bufferize),canonicalize,cse,mlirstack-own-tm-tensor-buffers)' | FileCheck %s
// RUN: mlirstack-opt %s --pass-pipeline='builtin.module(func.func(tm-tensor-bufferize),canonicalize,cse,mlirstack-own-tm-tensor-buffers)' | mlirstack-opt %bufferize | FileCheck %s --check-prefix=BUFFERS

// What the op reads is marked so, what it has written is the only name of its buffer.
// CHECK-LABEL: func.func @cumsum(
// CHECK:         %[[SUMS:.*]] = memref.alloc() : memref<8xf32>
// CHECK:         bufferization.to_tensor %[[SUMS]] restrict
// CHECK:         %[[X:.*]] = bufferization.to_buffer %{{.*}} read_only
// CHECK-NEXT:    tm_tensor.scan {{.*}} ins(%[[X]] {{.*}} outs(%[[SUMS]],
// BUFFERS-LABEL: func.func @cumsum(
// BUFFERS-NOT:     bufferization.to_tensor
// BUFFERS:         tm_tensor.scan
func.func @cumsum(%x: tensor<8xf32>, %sums: tensor<8xf32>, %last: tensor<f32>) -> tensor<8xf32> {
  %0:2 = tm_tensor.scan dimension(0) inclusive(true)
      ins(%x : tensor<8xf32>) outs(%sums, %last : tensor<8xf32>, tensor<f32>) {
  ^bb0(%element: f32, %sum: f32):
    %next = arith.addf %element, %sum : f32
    tm_tensor.yield %next : f32
  } -> tensor<8xf32>, tensor<f32>
  return %0#0 : tensor<8xf32>
}
