// Passes as flags run in the order of the command line, on the operation that they are for.
// RUN: mlirstack-opt %s --canonicalize --convert-scf-to-cf --convert-func-to-llvm | FileCheck %s
// RUN: mlirstack-opt %s -canonicalize -convert-scf-to-cf -convert-func-to-llvm | FileCheck %s
// RUN: mlirstack-opt %s --cse --dump-pass-pipeline --affine-parallelize -o /dev/null 2>&1 | FileCheck %s --check-prefix=NEST
// RUN: mlirstack-opt %s --canonicalize='max-iterations=3 top-down=false' --dump-pass-pipeline -o /dev/null 2>&1 | FileCheck %s --check-prefix=OPTIONS
// RUN: mlirstack-opt --canonicalize < %s | FileCheck %s --check-prefix=STDIN

// CHECK: llvm.func @abs(%[[X:.*]]: i32) -> i32
// CHECK:   cf.cond_br
// CHECK:   llvm.return

// A pass for functions is nested on them, as mlir-opt does it.
// NEST:      Pass Manager with 2 passes:
// NEST-NEXT: builtin.module(
// NEST-NEXT:   cse,
// NEST-NEXT:   func.func(
// NEST-NEXT:     affine-parallelize
// NEST-NEXT:   )
// NEST-NEXT: )

// OPTIONS: canonicalize{{.*}}max-iterations=3{{.*}}top-down=false

// STDIN: func.func @abs
func.func @abs(%x: i32) -> i32 {
  %zero = arith.constant 0 : i32
  %negative = arith.cmpi slt, %x, %zero : i32
  %abs = scf.if %negative -> i32 {
    %minus = arith.subi %zero, %x : i32
    func.call @trace() : () -> ()
    scf.yield %minus : i32
  } else {
    scf.yield %x : i32
  }
  return %abs : i32
}
func.func private @trace()
