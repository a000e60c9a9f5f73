// # linalg: named operations
//
// For: computations as what they are (matmul, conv, fill), with operands, results and nothing about loops.
// Level: linalg.
// Before: tosa, stablehlo, torch. After: linalg on tiles, vector, or loops.
// Natural here: choosing an algorithm by the op's name, packing operands, turning a transpose into an attribute.
// Try: mlirstack-opt dialect_samples/linalg_named.mlir --linalg-generalize-named-ops
//
// RUN: mlirstack-opt %s --linalg-generalize-named-ops | FileCheck %s --check-prefix=GENERIC
// RUN: mlirstack-opt %s %bufferize --convert-linalg-to-loops | FileCheck %s --check-prefix=LOOPS
// RUN: mlirstack-opt %s %bufferize %to_llvm | mlirstack-run --result='memref<2x2xf32>' | FileCheck %s --check-prefix=NUMBERS

// A name is short for maps and a body ...
// GENERIC-DAG:   #[[A:.*]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// GENERIC-DAG:   #[[B:.*]] = affine_map<(d0, d1, d2) -> (d2, d1)>
// GENERIC-DAG:   #[[C:.*]] = affine_map<(d0, d1, d2) -> (d0, d1)>
// GENERIC-LABEL: func.func @main
// GENERIC:       linalg.generic {indexing_maps = [#[[A]], #[[B]], #[[C]]], iterator_types = ["parallel", "parallel", "reduction"]}
// GENERIC:         arith.mulf
// GENERIC:         arith.addf

// ... which are three loops.
// LOOPS-LABEL: func.func @main
// LOOPS-COUNT-2: scf.for
// LOOPS:       scf.for %[[I:.*]] = %c0
// LOOPS:         scf.for %[[J:.*]] = %c0
// LOOPS:           scf.for %[[K:.*]] = %c0
// LOOPS:             memref.load %{{.*}}[%[[I]], %[[K]]]
// LOOPS:             memref.load %{{.*}}[%[[K]], %[[J]]]

// NUMBERS: {{\[\[}}19, 22], [43, 50]]
func.func @main() -> tensor<2x2xf32> attributes {llvm.emit_c_interface} {
  %a = arith.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %b = arith.constant dense<[[5.0, 6.0], [7.0, 8.0]]> : tensor<2x2xf32>
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<2x2xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<2x2xf32>) -> tensor<2x2xf32>
  %c = linalg.matmul ins(%a, %b : tensor<2x2xf32>, tensor<2x2xf32>) outs(%init : tensor<2x2xf32>) -> tensor<2x2xf32>
  return %c : tensor<2x2xf32>
}
