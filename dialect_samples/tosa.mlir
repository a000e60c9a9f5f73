// # tosa: the tensor operator set
//
// For: whole-tensor operators with a written specification, for every type and rounding: a small vocabulary for many models.
// Level: tosa.
// Before: torch. After: linalg.
// Natural here: folding constants of whole layers, moving transposes, checking that a target can run every operator.
// Try: mlirstack-opt dialect_samples/tosa.mlir --pass-pipeline='builtin.module(func.func(tosa-to-linalg,tosa-to-arith))'
//
// RUN: mlirstack-opt %s --pass-pipeline='builtin.module(func.func(tosa-to-linalg,tosa-to-arith))' | FileCheck %s
// RUN: mlirstack-opt %s --pass-pipeline='builtin.module(func.func(tosa-to-linalg,tosa-to-arith))' \
// RUN:   | mlirstack-opt %bufferize %to_llvm | mlirstack-run --result='memref<4xf32>' | FileCheck %s --check-prefix=NUMBERS

// Each operator becomes a loop nest with its scalar computation inside.
// CHECK-LABEL: func.func @main
// CHECK:       %[[SUM:.*]] = linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK:         arith.addf
// CHECK:       linalg.generic {{.*}} ins(%[[SUM]]
// CHECK:         arith.minimumf
// CHECK:         arith.maximumf

// clamp([-1, 0.5, 2, 5] + 1, 0, 4)
// NUMBERS: [0, 1.5, 3, 4]
func.func @main() -> tensor<4xf32> attributes {llvm.emit_c_interface} {
  %x = "tosa.const"() {values = dense<[-1.0, 0.5, 2.0, 5.0]> : tensor<4xf32>} : () -> tensor<4xf32>
  %one = "tosa.const"() {values = dense<1.0> : tensor<4xf32>} : () -> tensor<4xf32>
  %sum = tosa.add %x, %one : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %relu4 = tosa.clamp %sum {min_val = 0.0 : f32, max_val = 4.0 : f32} : (tensor<4xf32>) -> tensor<4xf32>
  return %relu4 : tensor<4xf32>
}
