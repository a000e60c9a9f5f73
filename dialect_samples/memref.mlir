// # memref: views of memory
//
// For: buffers with a shape, a layout and a memory space; views of them without copies; allocation and release.
// Level: buffer.
// Before: tensor, by bufferization. After: llvm: a memref is a struct of pointer, offset, sizes and strides.
// Natural here: folding views into the accesses behind them, promoting buffers to faster memory, hoisting allocations.
// Try: mlirstack-opt dialect_samples/memref.mlir --fold-memref-alias-ops --canonicalize
//
// RUN: mlirstack-opt %s --fold-memref-alias-ops --canonicalize | FileCheck %s --check-prefix=FOLD
// RUN: mlirstack-opt %s --expand-strided-metadata | FileCheck %s --check-prefix=STRIDED
// RUN: mlirstack-opt %s %to_llvm | mlirstack-run --result=f32 | FileCheck %s --check-prefix=NUMBERS

// The view disappears, its offset goes into the subscript ...
// FOLD-LABEL: func.func @main
// FOLD:       %[[G:.*]] = memref.get_global @table
// FOLD-NOT:   memref.subview
// FOLD:       memref.load %[[G]][%c2, %c3]

// ... or it becomes arithmetic on base pointer, offset and strides.
// STRIDED:     memref.reinterpret_cast %{{.*}} to offset: [9], sizes: [2, 3], strides: [4, 1]

memref.global "private" constant @table : memref<4x4xf32> =
    dense<[[0.0, 1.0, 2.0, 3.0], [10.0, 11.0, 12.0, 13.0], [20.0, 21.0, 22.0, 23.0], [30.0, 31.0, 32.0, 33.0]]>

// NUMBERS: 23
func.func @main() -> f32 {
  %table = memref.get_global @table : memref<4x4xf32>
  %view = memref.subview %table[2, 1] [2, 3] [1, 1] : memref<4x4xf32> to memref<2x3xf32, strided<[4, 1], offset: 9>>
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %x = memref.load %view[%c0, %c2] : memref<2x3xf32, strided<[4, 1], offset: 9>>
  return %x : f32
}
