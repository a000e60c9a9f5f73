// RUN: mlirstack-opt %s --mlirstack-bfloat-bits | FileCheck %s

// A bf16 that is only moved is 16 bits; an op that computes with one keeps its type.
// CHECK-LABEL: llvm.func @move(
// CHECK:         llvm.load %{{.*}} : !llvm.ptr -> i16
// CHECK:         llvm.store %{{.*}} : i16, !llvm.ptr
llvm.func @move(%from: !llvm.ptr, %to: !llvm.ptr) {
  %0 = llvm.load %from : !llvm.ptr -> bf16
  llvm.store %0, %to : bf16, !llvm.ptr
  llvm.return
}
// CHECK-LABEL: llvm.func @compute(
// CHECK:         llvm.load %{{.*}} : !llvm.ptr -> i16
// CHECK:         %[[X:.*]] = llvm.bitcast %{{.*}} : i16 to bf16
// CHECK:         llvm.fadd %[[X]], %{{.*}} : bf16
llvm.func @compute(%from: !llvm.ptr, %to: !llvm.ptr) {
  %0 = llvm.load %from : !llvm.ptr -> bf16
  %1 = llvm.fadd %0, %0 : bf16
  llvm.store %1, %to : bf16, !llvm.ptr
  llvm.return
}
