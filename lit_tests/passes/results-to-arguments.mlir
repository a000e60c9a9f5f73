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
