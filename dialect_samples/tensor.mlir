// # tensor: values with a shape
//
// For: immutable tensors: slices, insertions, padding, reshapes, shapes known only at run time.
// Level: linalg, between the computations.
// Before: tosa, stablehlo, torch. After: memref, by bufferization.
// Natural here: folding chains of slices and reshapes, since a value cannot be overwritten in between.
// Try: mlirstack-opt dialect_samples/tensor.mlir --canonicalize --fold-tensor-subset-ops
//
// RUN: mlirstack-opt %s --canonicalize --fold-tensor-subset-ops | FileCheck %s
// RUN: mlirstack-opt %s %bufferize %to_llvm | mlirstack-run --result=f32 | FileCheck %s --check-prefix=NUMBERS

// A slice of a slice is one slice; a slice that comes back whole disappears.
// CHECK-LABEL: func.func @slices(
// CHECK-SAME:    %[[X:.*]]: tensor<16x16xf32>
// CHECK-NEXT:  %[[S:.*]] = tensor.extract_slice %[[X]][6, 4] [2, 2] [1, 1]
// CHECK-NEXT:  return %[[S]]
func.func @slices(%x: tensor<16x16xf32>) -> tensor<2x2xf32> {
  %outer = tensor.extract_slice %x[4, 0] [8, 8] [1, 1] : tensor<16x16xf32> to tensor<8x8xf32>
  %inner = tensor.extract_slice %outer[2, 4] [2, 2] [1, 1] : tensor<8x8xf32> to tensor<2x2xf32>
  return %inner : tensor<2x2xf32>
}

// Padding with -1, then a read from the padding and one from the middle: -1 + 20.
// NUMBERS: 19
func.func @main() -> f32 {
  %x = arith.constant dense<[10.0, 20.0, 30.0]> : tensor<3xf32>
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %value = arith.constant -1.0 : f32
  %padded = tensor.pad %x low[1] high[1] {
  ^bb0(%i: index):
    tensor.yield %value : f32
  } : tensor<3xf32> to tensor<5xf32>
  %first = tensor.extract %padded[%c0] : tensor<5xf32>
  %middle = tensor.extract %padded[%c2] : tensor<5xf32>
  %sum = arith.addf %first, %middle : f32
  return %sum : f32
}
