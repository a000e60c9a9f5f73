// # shape: computing with shapes
//
// For: shapes as values: broadcasting, number of elements, and the conditions under which they are valid.
// Level: torch, tosa and linalg, where dimensions are dynamic.
// Before: front ends. After: arith and tensor on index, cf.assert.
// Natural here: proving that a broadcast is valid, or that two dynamic dimensions are the same.
// Try: mlirstack-opt dialect_samples/shape.mlir --canonicalize --convert-shape-to-std
//
// RUN: mlirstack-opt %s --canonicalize | FileCheck %s --check-prefix=FOLD
// RUN: mlirstack-opt %s --convert-shape-to-std %bufferize %to_llvm | mlirstack-run --result=index | FileCheck %s --check-prefix=NUMBERS

// FOLD-LABEL: func.func @folds
// FOLD:       %[[N:.*]] = arith.constant 24 : index
// FOLD:       return %[[N]]
func.func @folds() -> index {
  %shape = shape.const_shape [2, 3, 4] : tensor<3xindex>
  %n = shape.num_elements %shape : tensor<3xindex> -> index
  return %n : index
}

// The second dimension of 3x1 against 4.
// NUMBERS: 4
func.func @main() -> index {
  %a = arith.constant dense<[3, 1]> : tensor<2xindex>
  %b = arith.constant dense<4> : tensor<1xindex>
  %together = shape.broadcast %a, %b : tensor<2xindex>, tensor<1xindex> -> tensor<2xindex>
  %c1 = arith.constant 1 : index
  %d = tensor.extract %together[%c1] : tensor<2xindex>
  return %d : index
}
