// Text to bytecode and back is the same module.
// RUN: mlirstack-opt %s --emit-bytecode -o %t.mlirbc
// RUN: mlirstack-opt %t.mlirbc | FileCheck %s
// RUN: mlirstack-opt %s --emit-bytecode | mlirstack-opt --mlir-print-debuginfo | FileCheck %s --check-prefix=LOC
// RUN: mlirstack-opt %s --verify-roundtrip | FileCheck %s
// RUN: printf 'ML\357Rbroken' | not mlirstack-opt 2>&1 | FileCheck %s --check-prefix=BROKEN

// CHECK: func.func @f(%[[X:.*]]: tensor<?xf32>)
// CHECK-NEXT: math.exp %[[X]]
// LOC: bytecode.mlir":[[#]]:
// BROKEN: error:
func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> {
  %0 = math.exp %x : tensor<?xf32>
  return %0 : tensor<?xf32>
}
