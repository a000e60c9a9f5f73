// # affine: loops that can be reasoned about
//
// For: loops whose bounds and subscripts are affine, so that dependences are known exactly (the polyhedral model).
// Level: loops.
// Before: linalg. After: scf, vector.
// Natural here: loop fusion, interchange, tiling and parallelisation with proof that they are allowed.
// Try: mlirstack-opt dialect_samples/affine.mlir --affine-loop-fusion
//
// RUN: mlirstack-opt %s --pass-pipeline='builtin.module(func.func(affine-loop-fusion))' | FileCheck %s --check-prefix=FUSED
// RUN: mlirstack-opt %s --affine-parallelize | FileCheck %s --check-prefix=PARALLEL
// RUN: mlirstack-opt %s --lower-affine | FileCheck %s --check-prefix=SCF

// One loop, no buffer between.
// FUSED-LABEL:    func.func @chain
// FUSED:          affine.for
// FUSED:            arith.mulf
// FUSED:            arith.addf
// FUSED-NOT:      affine.for
// PARALLEL-LABEL: func.func @chain
// PARALLEL:       affine.parallel
// SCF-LABEL:      func.func @chain
// SCF:            scf.for
func.func @chain(%x: memref<64xf32>, %y: memref<64xf32>) {
  %between = memref.alloc() : memref<64xf32>
  affine.for %i = 0 to 64 {
    %0 = affine.load %x[%i] : memref<64xf32>
    %1 = arith.mulf %0, %0 : f32
    affine.store %1, %between[%i] : memref<64xf32>
  }
  affine.for %i = 0 to 64 {
    %0 = affine.load %between[%i] : memref<64xf32>
    %1 = affine.load %x[%i] : memref<64xf32>
    %2 = arith.addf %0, %1 : f32
    affine.store %2, %y[%i] : memref<64xf32>
  }
  return
}
