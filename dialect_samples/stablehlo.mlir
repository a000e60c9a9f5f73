// # stablehlo: the portable operator set of XLA's front ends
//
// For: exchanging models between JAX, PyTorch/XLA, TensorFlow and compilers, with promises about compatibility.
// Level: stablehlo, beside tosa.
// Before: another framework, or torch. After: linalg.
// Natural here: shape refinement, simplification of operators with dimension numbers (dot_general, gather).
// Try: mlirstack-opt dialect_samples/stablehlo.mlir --stablehlo-legalize-to-linalg
//
// RUN: mlirstack-opt %s --stablehlo-legalize-to-linalg | FileCheck %s
// RUN: mlirstack-opt %s --stablehlo-legalize-to-linalg --canonicalize %bufferize %to_llvm \
// RUN:   | mlirstack-run --result='memref<2xf32>' | FileCheck %s --check-prefix=NUMBERS

// dot_general says which dimensions are contracted; linalg says it by maps.
// CHECK-LABEL: func.func @main
// CHECK:       linalg.{{matvec|generic}}

// [[1, 2], [3, 4]] · [10, 20] + 1
// NUMBERS: [51, 111]
func.func @main() -> tensor<2xf32> attributes {llvm.emit_c_interface} {
  %a = stablehlo.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %x = stablehlo.constant dense<[10.0, 20.0]> : tensor<2xf32>
  %one = stablehlo.constant dense<1.0> : tensor<2xf32>
  %product = stablehlo.dot_general %a, %x, contracting_dims = [1] x [0] : (tensor<2x2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %sum = stablehlo.add %product, %one : tensor<2xf32>
  return %sum : tensor<2xf32>
}
