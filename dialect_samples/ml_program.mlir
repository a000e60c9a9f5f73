// # ml_program: what a model keeps
//
// For: parameters and state of a model as globals of any type, tensors included.
// Level: torch, tosa and linalg.
// Before: front ends. After: memref globals.
// Natural here: knowing which tensors never change.
// Try: mlirstack-opt dialect_samples/ml_program.mlir --pass-pipeline='builtin.module(refback-mlprogram-bufferize)'
//
// RUN: mlirstack-opt %s --refback-mlprogram-bufferize | FileCheck %s

// CHECK:       memref.global "private" @count : memref<i64> = dense<0>
// CHECK-LABEL: func.func @next
// CHECK:       memref.get_global @count
// CHECK:       memref.copy
ml_program.global private mutable @count(dense<0> : tensor<i64>) : tensor<i64>
func.func @next() -> i64 {
  %old = ml_program.global_load @count : tensor<i64>
  %value = tensor.extract %old[] : tensor<i64>
  %one = arith.constant 1 : i64
  %sum = arith.addi %value, %one : i64
  %new = tensor.from_elements %sum : tensor<i64>
  ml_program.global_store @count = %new : tensor<i64>
  return %sum : i64
}
