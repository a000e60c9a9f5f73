// # vector: transfers and masks
//
// For: reading a vector out of a tensor or memref whose size need not be a multiple of it.
// Level: vector.
// Before: vectorized linalg. After: scf and masked loads, llvm.
// Natural here: ragged edges: padding in the transfer costs nothing where the bounds are known.
// Try: mlirstack-opt dialect_samples/vector_transfer.mlir --convert-vector-to-scf --convert-vector-to-llvm
//
// RUN: mlirstack-opt %s --convert-vector-to-scf | FileCheck %s --check-prefix=SCF
// RUN: mlirstack-opt %s --convert-vector-to-scf --convert-vector-to-llvm | FileCheck %s --check-prefix=MASK
// RUN: mlirstack-opt %s %to_llvm | mlirstack-run --result=f32 | FileCheck %s --check-prefix=NUMBERS

memref.global "private" constant @five : memref<5xf32> = dense<[1.0, 2.0, 3.0, 4.0, 5.0]>

// A transfer of two dimensions is a loop over rows; the last dimension stays a vector.
// SCF-LABEL: func.func @rows(
// SCF:       scf.for
// SCF:         vector.transfer_read {{.*}} vector<4xf32>
func.func @rows(%m: memref<8x8xf32>, %i: index) -> vector<2x4xf32> {
  %pad = arith.constant 0.0 : f32
  %0 = vector.transfer_read %m[%i, %i], %pad : memref<8x8xf32>, vector<2x4xf32>
  return %0 : vector<2x4xf32>
}

// Four elements from position 3 of five: what is outside counts as 10. The mask comes from comparing positions with the size.
// MASK-LABEL: func.func @main
// MASK:       %[[MASK:.*]] = arith.constant dense<[true, true, false, false]> : vector<4xi1>
// MASK:       llvm.intr.masked.load %{{.*}}, %[[MASK]]
// NUMBERS: 29
func.func @main() -> f32 {
  %five = memref.get_global @five : memref<5xf32>
  %pad = arith.constant 10.0 : f32
  %c3 = arith.constant 3 : index
  %v = vector.transfer_read %five[%c3], %pad : memref<5xf32>, vector<4xf32>
  %sum = vector.reduction <add>, %v : vector<4xf32> into f32
  return %sum : f32
}
