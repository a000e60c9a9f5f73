// # bufferization: from values to memory
//
// For: deciding which tensors share a buffer, and saying so where it must be said by hand.
// Level: the border between linalg on tensors and buffers.
// Before: tensor, linalg, scf on tensors. After: memref.
// Natural here: one analysis of the whole program (One-Shot Bufferize): write in place where nobody reads the old value,
// copy where somebody does; then who frees which buffer.
// Try: mlirstack-opt dialect_samples/bufferization.mlir --one-shot-bufferize='bufferize-function-boundaries=true'
//
// RUN: mlirstack-opt %s --one-shot-bufferize='bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map' | FileCheck %s
// RUN: mlirstack-opt %s %bufferize --buffer-deallocation-pipeline | FileCheck %s --check-prefix=FREE
// RUN: mlirstack-opt %s %bufferize %to_llvm | mlirstack-run --result=f32 | FileCheck %s --check-prefix=NUMBERS

// The argument is not read any more: the insertion writes into it.
// CHECK-LABEL: func.func @in_place(
// CHECK-SAME:    %[[T:.*]]: memref<4xf32>
// CHECK-NOT:   memref.alloc
// CHECK:       memref.store %{{.*}}, %[[T]]
func.func @in_place(%t: tensor<4xf32>, %x: f32, %i: index) -> tensor<4xf32> {
  %new = tensor.insert %x into %t[%i] : tensor<4xf32>
  return %new : tensor<4xf32>
}

// The old value is read afterwards: a copy is written.
// CHECK-LABEL: func.func @copied(
// CHECK-SAME:    %[[T:.*]]: memref<4xf32>
// CHECK:       %[[COPY:.*]] = memref.alloc
// CHECK:       memref.copy %[[T]], %[[COPY]]
// CHECK:       memref.store %{{.*}}, %[[COPY]]
// CHECK:       memref.load %[[T]]
// FREE-LABEL:  func.func @copied
// FREE:        %[[COPY:.*]] = memref.alloc
// FREE:        memref.dealloc %[[COPY]]
func.func @copied(%t: tensor<4xf32>, %x: f32, %i: index) -> f32 {
  %new = tensor.insert %x into %t[%i] : tensor<4xf32>
  %old = tensor.extract %t[%i] : tensor<4xf32>
  %written = tensor.extract %new[%i] : tensor<4xf32>
  %sum = arith.addf %old, %written : f32
  return %sum : f32
}

// NUMBERS: 102
func.func @main() -> f32 {
  %t = arith.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %hundred = arith.constant 100.0 : f32
  %one = arith.constant 1 : index
  %sum = func.call @copied(%t, %hundred, %one) : (tensor<4xf32>, f32, index) -> f32
  return %sum : f32
}
