// # llvm: LLVM IR inside MLIR
//
// For: everything LLVM IR has, one op per instruction, so that the way out of MLIR is a translation and not a lowering.
// Level: llvm, the last of MLIR.
// Before: cf, memref, arith, vector by their conversions. After: LLVM IR.
// Natural here: little; LLVM itself optimises better. Attributes that LLVM needs to hear (no alias, alignment) are set here.
// Try: mlirstack-translate dialect_samples/llvm.mlir --mlir-to-llvmir
//
// RUN: mlirstack-translate %s --mlir-to-llvmir | FileCheck %s --check-prefix=IR
// RUN: mlirstack-translate %s --mlir-to-llvmir | mlirstack-translate --llvmir-to-asm | FileCheck %s --check-prefix=ASM
// RUN: mlirstack-run %s --result=f32 | FileCheck %s --check-prefix=NUMBERS

// IR: @table = private constant [4 x float] [float 1.000000e+00, float 2.000000e+00, float 3.000000e+00, float 4.000000e+00]
llvm.mlir.global private constant @table(dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>) : !llvm.array<4 x f32>

// IR-LABEL: define float @element(i64 %0)
// IR:         %[[P:.*]] = getelementptr [4 x float], ptr @table, i32 0, i64 %0
// IR:         load float, ptr %[[P]]
// ASM:      element:
// ASM:        {{ret}}
llvm.func @element(%i: i64) -> f32 {
  %base = llvm.mlir.addressof @table : !llvm.ptr
  %address = llvm.getelementptr %base[0, %i] : (!llvm.ptr, i64) -> !llvm.ptr, !llvm.array<4 x f32>
  %x = llvm.load %address : !llvm.ptr -> f32
  llvm.return %x : f32
}

// NUMBERS: 3
llvm.func @main() -> f32 {
  %two = llvm.mlir.constant(2 : i64) : i64
  %x = llvm.call @element(%two) : (i64) -> f32
  llvm.return %x : f32
}
