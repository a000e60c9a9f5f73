// LLVM packs vectors of i1 into bits; memory made of single i1 has a byte for each.
// RUN: mlirstack-opt %s --mlirstack-boolean-bytes | FileCheck %s

// CHECK-LABEL: llvm.func @bytes(
// CHECK: %[[BYTES:.*]] = llvm.load %{{.*}} {alignment = 4 : i64} : !llvm.ptr -> vector<4xi8>
// CHECK: %[[FLAGS:.*]] = llvm.trunc %[[BYTES]] : vector<4xi8> to vector<4xi1>
// CHECK: llvm.select %[[FLAGS]]
// CHECK: %[[WIDE:.*]] = llvm.zext %[[FLAGS]] : vector<4xi1> to vector<4xi8>
// CHECK: llvm.store %[[WIDE]], %{{.*}} : vector<4xi8>, !llvm.ptr
llvm.func @bytes(%p: !llvm.ptr, %i: i64, %v: vector<4xf32>, %w: vector<4xf32>) -> vector<4xf32> {
  %0 = llvm.load %p {alignment = 4 : i64} : !llvm.ptr -> vector<4xi1>
  %1 = llvm.select %0, %v, %w : vector<4xi1>, vector<4xf32>
  %2 = llvm.getelementptr %p[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i1
  llvm.store %0, %2 : vector<4xi1>, !llvm.ptr
  llvm.return %1 : vector<4xf32>
}

// CHECK-LABEL: llvm.func @whole_vectors(
// CHECK: llvm.load %{{.*}} : !llvm.ptr -> vector<4xi1>
llvm.func @whole_vectors(%n: i64, %i: i64) -> vector<4xi1> {
  %0 = llvm.alloca %n x vector<4xi1> : (i64) -> !llvm.ptr
  %1 = llvm.getelementptr %0[%i] : (!llvm.ptr, i64) -> !llvm.ptr, vector<4xi1>
  %2 = llvm.load %1 : !llvm.ptr -> vector<4xi1>
  llvm.return %2 : vector<4xi1>
}

// CHECK-LABEL: llvm.func @single(
// CHECK: llvm.load %{{.*}} : !llvm.ptr -> i1
llvm.func @single(%p: !llvm.ptr) -> i1 {
  %0 = llvm.load %p : !llvm.ptr -> i1
  llvm.return %0 : i1
}
