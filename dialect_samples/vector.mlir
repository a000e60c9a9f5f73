// # vector: registers with a shape
//
// For: computations on values as large as a register or a few of them, of any rank, with masks and transfers from memory.
// Level: vector.
// Before: linalg on tiles. After: llvm (vectors of one dimension), nvgpu, or target instructions.
// Natural here: choosing how a small contraction is done (outer products, dot products, tensor cores), forwarding of stores
// to loads, unrolling to the width of the machine.
// Try: mlirstack-opt dialect_samples/vector.mlir --transform=dialect_samples/Inputs/lower_contraction.mlir --canonicalize
//
// RUN: mlirstack-opt %s --transform=%S/Inputs/lower_contraction.mlir --canonicalize | FileCheck %s --check-prefix=OUTER
// RUN: mlirstack-opt %s --transform=%S/Inputs/lower_contraction.mlir --transform-entry-point=to_multiply_add --canonicalize %to_llvm | FileCheck %s --check-prefix=LLVM
// RUN: mlirstack-opt %s --transform=%S/Inputs/lower_contraction.mlir --transform-entry-point=to_multiply_add %to_llvm | mlirstack-run --result=f32 | FileCheck %s --check-prefix=NUMBERS

// A contraction as a sum of outer products, and these as fused multiply-adds of rows.
// OUTER-LABEL:   func.func @matmul(
// OUTER-NOT:     vector.contract
// OUTER-COUNT-3: vector.outerproduct
// LLVM-LABEL:    llvm.func @matmul(
// LLVM:          llvm.intr.{{fma|fmuladd}}(%{{.*}}) : (vector<2xf32>, vector<2xf32>, vector<2xf32>) -> vector<2xf32>
#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (k, j)>
#c = affine_map<(i, j, k) -> (i, j)>
func.func @matmul(%a: vector<2x3xf32>, %b: vector<3x2xf32>, %c: vector<2x2xf32>) -> vector<2x2xf32> {
  %0 = vector.contract {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      %a, %b, %c : vector<2x3xf32>, vector<3x2xf32> into vector<2x2xf32>
  return %0 : vector<2x2xf32>
}

// The sum of all elements of [[1, 2, 3], [4, 5, 6]] · [[1, 0], [0, 1], [1, 1]].
// NUMBERS: 30
func.func @main() -> f32 {
  %a = arith.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : vector<2x3xf32>
  %b = arith.constant dense<[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]> : vector<3x2xf32>
  %zero = arith.constant dense<0.0> : vector<2x2xf32>
  %c = call @matmul(%a, %b, %zero) : (vector<2x3xf32>, vector<3x2xf32>, vector<2x2xf32>) -> vector<2x2xf32>
  %flat = vector.shape_cast %c : vector<2x2xf32> to vector<4xf32>
  %sum = vector.reduction <add>, %flat : vector<4xf32> into f32
  return %sum : f32
}
