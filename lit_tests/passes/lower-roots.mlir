// RUN: mlirstack-opt %s --mlirstack-lower-roots | FileCheck %s

// CHECK-LABEL: func.func @roots(
// CHECK-SAME:    %[[X:.*]]: tensor<?x4xf32>
// CHECK:         %[[ROOT:.*]] = math.sqrt %[[X]] : tensor<?x4xf32>
// CHECK:         math.rsqrt %[[ROOT]] : tensor<?x4xf32>
func.func @roots(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %half = "tosa.const"() {values = dense<5.0e-1> : tensor<1x1xf32>} : () -> tensor<1x1xf32>
  %minus = "tosa.const"() {values = dense<-5.0e-1> : tensor<1xf32>} : () -> tensor<1xf32>
  %shape = tosa.const_shape {values = dense<1> : tensor<2xindex>} : () -> !tosa.shape<2>
  %grown = tosa.reshape %minus, %shape : (tensor<1xf32>, !tosa.shape<2>) -> tensor<1x1xf32>
  %0 = tosa.pow %x, %half : (tensor<?x4xf32>, tensor<1x1xf32>) -> tensor<?x4xf32>
  %1 = tosa.pow %0, %grown : (tensor<?x4xf32>, tensor<1x1xf32>) -> tensor<?x4xf32>
  return %1 : tensor<?x4xf32>
}

// Other powers, and powers of another shape, stay.
// CHECK-LABEL: func.func @powers(
// CHECK-COUNT-3: tosa.pow
// CHECK-NOT:     math.
func.func @powers(%x: tensor<1x4xf32>, %y: tensor<2x4xf32>) -> (tensor<1x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>) {
  %third = "tosa.const"() {values = dense<3.0e-1> : tensor<1x1xf32>} : () -> tensor<1x1xf32>
  %half = "tosa.const"() {values = dense<5.0e-1> : tensor<2x1xf32>} : () -> tensor<2x1xf32>
  %0 = tosa.pow %x, %third : (tensor<1x4xf32>, tensor<1x1xf32>) -> tensor<1x4xf32>
  %1 = tosa.pow %x, %half : (tensor<1x4xf32>, tensor<2x1xf32>) -> tensor<2x4xf32>
  %2 = tosa.pow %y, %x : (tensor<2x4xf32>, tensor<1x4xf32>) -> tensor<2x4xf32>
  return %0, %1, %2 : tensor<1x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>
}
