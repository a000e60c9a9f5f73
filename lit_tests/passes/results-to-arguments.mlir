// RUN: mlirstack-opt %s --mlirstack-results-to-arguments | FileCheck %s

// The caller allocates what has a static shape.
// CHECK-LABEL: func.func @main(
// CHECK-SAME:    %[[X:.*]]: memref<4xf32>, %[[OUT:.*]]: memref<4xf32> {bufferize.result})
// CHECK-NOT:     memref.alloc
// CHECK:         linalg.exp ins(%[[X]] : memref<4xf32>) outs(%[[OUT]] : memref<4xf32>)
// CHECK:         return{{$}}
func.func @main(%x: memref<4xf32>) -> memref<4xf32> {
  %0 = memref.alloc() : memref<4xf32>
  linalg.exp ins(%x : memref<4xf32>) outs(%0 : memref<4xf32>)
  return %0 : memref<4xf32>
}

// A result that was reshaped on its way is written to the caller's memory as well.
// CHECK-LABEL: func.func @reshaped(
// CHECK-SAME:    %[[X:.*]]: memref<8xf32>, %[[OUT:.*]]: memref<2x4xf32> {bufferize.result})
// CHECK-NOT:     memref.alloc
// CHECK:         %[[FLAT:.*]] = memref.collapse_shape %[[OUT]]
// CHECK:         linalg.exp ins(%[[X]] : memref<8xf32>) outs(%{{.*}} : memref<8xf32>)
// CHECK-NOT:     memref.copy
// CHECK:         return{{$}}
func.func @reshaped(%x: memref<8xf32>) -> memref<2x4xf32> {
  %0 = memref.alloc() : memref<4x2xf32>
  %1 = memref.collapse_shape %0 [[0, 1]] : memref<4x2xf32> into memref<8xf32>
  linalg.exp ins(%x : memref<8xf32>) outs(%1 : memref<8xf32>)
  %2 = memref.expand_shape %1 [[0, 1]] output_shape [2, 4] : memref<8xf32> into memref<2x4xf32>
  return %2 : memref<2x4xf32>
}
