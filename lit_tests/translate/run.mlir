// mlirstack-run calls a function and prints what it returns.
// RUN: mlirstack-opt %s --convert-to-llvm --reconcile-unrealized-casts -o %t.mlir
// RUN: mlirstack-run %t.mlir --entry=number --result=f32 | FileCheck %s --check-prefix=F32
// RUN: mlirstack-run %t.mlir --entry=flag --result=i1 | FileCheck %s --check-prefix=I1
// RUN: mlirstack-run %t.mlir --entry=table --result='memref<2x3xi32>' | FileCheck %s --check-prefix=TABLE
// RUN: not mlirstack-run %t.mlir --entry=table --result='memref<3x3xi32>' 2>&1 | FileCheck %s --check-prefix=SHAPE
// RUN: not mlirstack-run %t.mlir --entry=missing --result=f32 2>&1 | FileCheck %s --check-prefix=ENTRY
// RUN: not mlirstack-run %t.mlir --entry=number --result=f31 2>&1 | FileCheck %s --check-prefix=TYPE
// RUN: not mlirstack-run %t.mlir --entry=crash 2>&1 | FileCheck %s --check-prefix=CRASH
// RUN: not mlirstack-run %s --entry=number --result=f32 2>&1 | FileCheck %s --check-prefix=LOWER

// F32: 2.5
// I1: true
// TABLE: {{\[\[}}1, 2, 3], [4, 5, 6]]
// SHAPE: a memref of shape [2, 3], not [3, 3]
// ENTRY: no function 'missing'
// TYPE: unknown type 'f31' of a result
// CRASH: the program crashed with SIG
// LOWER: is not in the LLVM dialect: lower the module first
memref.global "private" constant @numbers : memref<2x3xi32> = dense<[[1, 2, 3], [4, 5, 6]]>
func.func @number() -> f32 {
  %0 = arith.constant 2.5 : f32
  return %0 : f32
}
func.func @flag() -> i1 {
  %0 = arith.constant true
  return %0 : i1
}
func.func @table() -> memref<2x3xi32> attributes {llvm.emit_c_interface} {
  %0 = memref.get_global @numbers : memref<2x3xi32>
  return %0 : memref<2x3xi32>
}
func.func @crash() {
  %0 = llvm.mlir.zero : !llvm.ptr
  %1 = llvm.mlir.constant(1 : i32) : i32
  llvm.store volatile %1, %0 : i32, !llvm.ptr
  return
}
