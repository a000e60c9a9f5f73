// RUN: mlirstack-opt %s --mlirstack-iree-output-channels-last | FileCheck %s

// CHECK-LABEL: func.func @main(
// CHECK-SAME:    %[[X:.*]]: tensor<1x8x8x4xf32>, %[[F:.*]]: tensor<16x3x3x4xf32>
// CHECK:         %[[T:.*]] = linalg.transpose ins(%[[F]] : tensor<16x3x3x4xf32>)
// CHECK:         linalg.conv_2d_nhwc_hwcf {{.*}}ins(%[[X]], %[[T]] : tensor<1x8x8x4xf32>, tensor<3x3x4x16xf32>)
func.func @main(%x: tensor<1x8x8x4xf32>, %f: tensor<16x3x3x4xf32>, %init: tensor<1x6x6x16xf32>) -> tensor<1x6x6x16xf32> {
  %0 = linalg.conv_2d_nhwc_fhwc {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%x, %f : tensor<1x8x8x4xf32>, tensor<16x3x3x4xf32>) outs(%init : tensor<1x6x6x16xf32>) -> tensor<1x6x6x16xf32>
  return %0 : tensor<1x6x6x16xf32>
}
