// The steps that leave MLIR: LLVM IR, an object, its disassembly.
// RUN: mlirstack-opt %s --mlirstack-translate-to-llvmir | FileCheck %s --check-prefix=IR
// RUN: mlirstack-opt %s --mlirstack-translate-to-llvmir --mlirstack-compile-object -o %t.o && %python -c 'print(open(r"%t.o", "rb").read(4))' | FileCheck %s --check-prefix=OBJECT
// RUN: mlirstack-opt %s --mlirstack-translate-to-llvmir --mlirstack-compile-object='opt-level=3' --mlirstack-disassemble | FileCheck %s --check-prefix=ASM
// RUN: not mlirstack-opt %s --mlirstack-translate-to-llvmir --canonicalize 2>&1 | FileCheck %s --check-prefix=ORDER

// IR: define float @scale(float %0)
// Literals as released LLVM versions read them.
// IR: fmul float %0, 0x3FF19999A0000000
// OBJECT: b'\x7fELF'
// ASM: scale:
// ASM: ret
// ORDER: 'canonicalize' cannot run after 'mlirstack-translate-to-llvmir', which leaves MLIR
llvm.func @scale(%x: f32) -> f32 {
  %factor = llvm.mlir.constant(1.1 : f32) : f32
  %0 = llvm.fmul %x, %factor : f32
  llvm.return %0 : f32
}
