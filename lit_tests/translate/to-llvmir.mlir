// The LLVM dialect to LLVM IR, to assembly, to PTX; and what cannot be translated.
// RUN: mlirstack-translate %s --mlir-to-llvmir | FileCheck %s
// RUN: mlirstack-translate --mlir-to-llvmir < %s | FileCheck %s
// RUN: mlirstack-translate %s --mlir-to-llvmir | mlirstack-translate --llvmir-to-asm --O=3 | FileCheck %s --check-prefix=ASM
// RUN: mlirstack-translate %s --mlir-to-llvmir | mlirstack-translate --llvmir-to-ptx --mcpu=sm_80 | FileCheck %s --check-prefix=PTX
// RUN: not mlirstack-translate %s --import-llvm 2>&1 | FileCheck %s --check-prefix=REFUSED
// RUN: not mlirstack-translate %s 2>&1 | FileCheck %s --check-prefix=NOTHING
// RUN: echo nonsense | not mlirstack-translate --llvmir-to-asm 2>&1 | FileCheck %s --check-prefix=NONSENSE

// CHECK: define float @scale(float %[[X:.*]]) {
// CHECK:   fmul float %[[X]], 1.100000e+00
// ASM: scale:
// ASM:   {{mulss}}
// PTX: .target sm_80
// PTX: .visible .func {{.*}} scale(
// PTX:   mul.rn.f32
// REFUSED: --import-llvm is not supported
// NOTHING: exactly one of --mlir-to-llvmir
// NONSENSE: LLVM does not accept the IR
llvm.func @scale(%x: f32) -> f32 {
  %factor = llvm.mlir.constant(1.1 : f32) : f32
  %0 = llvm.fmul %x, %factor : f32
  llvm.return %0 : f32
}
