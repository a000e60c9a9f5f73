// # scf: structured control flow
//
// For: loops, conditions and parallel regions as ops with results, carried values and nothing hidden.
// Level: loops.
// Before: linalg, affine, vector. After: cf, openmp, gpu.
// Natural here: loop peeling, unrolling, pipelining, mapping parallel loops to threads; a graph of blocks has no loops.
// Try: mlirstack-opt dialect_samples/scf.mlir --convert-scf-to-cf
//
// RUN: mlirstack-opt %s --convert-scf-to-cf | FileCheck %s --check-prefix=CF
// RUN: mlirstack-opt %s --scf-for-loop-peeling | FileCheck %s --check-prefix=PEEL
// RUN: mlirstack-opt %s %to_llvm | mlirstack-run --result=i32 | FileCheck %s --check-prefix=NUMBERS

// A loop is a block that may branch to itself; its carried value is a block argument.
// CF-LABEL: func.func @main
// CF:         cf.br ^[[HEAD:.*]](%{{.*}}, %{{.*}} : index, i32)
// CF:       ^[[HEAD]](%[[I:.*]]: index, %[[SUM:.*]]: i32):
// CF:         cf.cond_br %{{.*}}, ^[[BODY:.*]], ^[[EXIT:.*]]
// CF:       ^[[BODY]]:
// CF:         cf.br ^[[HEAD]]
// The last, incomplete step is taken out of the loop.
// PEEL:     scf.for %{{.*}} = %c0 to %c8 step %c4
// 0 + 4 + 8
// NUMBERS: 12
func.func @main() -> i32 {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %c10 = arith.constant 10 : index
  %zero = arith.constant 0 : i32
  %sum = scf.for %i = %c0 to %c10 step %c4 iter_args(%so_far = %zero) -> i32 {
    %n = arith.index_cast %i : index to i32
    %next = arith.addi %so_far, %n : i32
    scf.yield %next : i32
  }
  return %sum : i32
}
