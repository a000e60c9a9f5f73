// # omp: OpenMP
//
// For: parallel regions, work-sharing loops, reductions and tasks of OpenMP, with its own runtime.
// Level: loops, down to llvm.
// Before: scf.parallel. After: LLVM IR with calls of the OpenMP runtime.
// Natural here: scheduling of iterations over threads; the runtime does the rest.
// Try: mlirstack-opt dialect_samples/omp.mlir --convert-scf-to-openmp
//
// RUN: mlirstack-opt %s --convert-scf-to-openmp | FileCheck %s
// RUN: mlirstack-opt %s --convert-scf-to-openmp --convert-openmp-to-llvm --convert-to-llvm --reconcile-unrealized-casts | mlirstack-translate --mlir-to-llvmir | FileCheck %s --check-prefix=IR

// CHECK-LABEL: func.func @scale(
// CHECK:       omp.parallel
// CHECK:         omp.wsloop
// CHECK:           omp.loop_nest
// IR: call void {{.*}} @__kmpc_fork_call(
// IR: call void @__kmpc_for_static_init
func.func @scale(%m: memref<1024xf32>, %factor: f32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c1024 = arith.constant 1024 : index
  scf.parallel (%i) = (%c0) to (%c1024) step (%c1) {
    %x = memref.load %m[%i] : memref<1024xf32>
    %y = arith.mulf %x, %factor : f32
    memref.store %y, %m[%i] : memref<1024xf32>
  }
  return
}
