// Loops that step through the elements of one vector, as transfers to memory that is not contiguous become.
// RUN: mlirstack-opt %s --mlirstack-cpu-unroll-strided-vectors --canonicalize --cse | FileCheck %s

// CHECK-LABEL: func.func @read(
// CHECK-NOT:     scf.for
// CHECK-COUNT-3: memref.load
// CHECK:         vector.from_elements
func.func @read(%x: memref<7xf32>) -> vector<3xf32> attributes {mlirstack.kernel = "other"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %init = ub.poison : vector<3xf32>
  %0 = scf.for %i = %c0 to %c3 step %c1 iter_args(%v = %init) -> (vector<3xf32>) {
    %at = affine.apply affine_map<(d0) -> (d0 * 3)>(%i)
    %e = memref.load %x[%at] : memref<7xf32>
    %r = vector.insert %e, %v [%i] : f32 into vector<3xf32>
    scf.yield %r : vector<3xf32>
  }
  return %0 : vector<3xf32>
}

// CHECK-LABEL: func.func @write(
// CHECK-NOT:     scf.for
// CHECK:         memref.store %{{.*}}, %{{.*}}[%c0]
// CHECK:         memref.store %{{.*}}, %{{.*}}[%c3]
func.func @write(%v: vector<2xf32>, %x: memref<7xf32>) attributes {mlirstack.kernel = "other"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  scf.for %i = %c0 to %c2 step %c1 {
    %at = affine.apply affine_map<(d0) -> (d0 * 3)>(%i)
    %e = vector.extract %v[%i] : f32 from vector<2xf32>
    memref.store %e, %x[%at] : memref<7xf32>
  }
  return
}

// Half of the vector, another order, and a sum that is carried: none of them is a transfer.
// CHECK-LABEL: func.func @others(
// CHECK-COUNT-3: scf.for
func.func @others(%x: memref<7xf32>, %v: vector<4xf32>) -> (vector<4xf32>, f32) attributes {mlirstack.kernel = "other"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %0 = scf.for %i = %c0 to %c2 step %c1 iter_args(%w = %v) -> (vector<4xf32>) {
    %e = memref.load %x[%i] : memref<7xf32>
    %r = vector.insert %e, %w [%i] : f32 into vector<4xf32>
    scf.yield %r : vector<4xf32>
  }
  %1 = scf.for %i = %c0 to %c4 step %c1 iter_args(%w = %0) -> (vector<4xf32>) {
    %at = affine.apply affine_map<(d0) -> (3 - d0)>(%i)
    %e = memref.load %x[%i] : memref<7xf32>
    %r = vector.insert %e, %w [%at] : f32 into vector<4xf32>
    scf.yield %r : vector<4xf32>
  }
  %zero = arith.constant 0.0 : f32
  %2 = scf.for %i = %c0 to %c4 step %c1 iter_args(%s = %zero) -> (f32) {
    %e = vector.extract %v[%i] : f32 from vector<4xf32>
    %t = arith.addf %s, %e : f32
    scf.yield %t : f32
  }
  return %1, %2 : vector<4xf32>, f32
}
