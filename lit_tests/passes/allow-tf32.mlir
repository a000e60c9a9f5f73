// Products and convolutions of f32 are marked by kind; a 1x1 convolution stays marked when it has become a contraction.
// RUN: mlirstack-opt %s --mlirstack-allow-tf32='ops=convolution' --mlirstack-generalize-named='windows=true' --linalg-fold-unit-extent-dims | FileCheck %s
// RUN: mlirstack-opt %s --mlirstack-allow-tf32='ops=matmul,convolution' --mlirstack-generalize-named='windows=true' | FileCheck %s --check-prefix=BOTH
// RUN: not mlirstack-opt %s --mlirstack-allow-tf32='ops=conv' 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// CHECK-LABEL: func.func @main(
// CHECK:         arith.mulf
// CHECK-NOT:     mlirstack.tf32
// CHECK:         arith.extf
// CHECK-NOT:     mlirstack.tf32
// CHECK:         iterator_types = ["parallel", "parallel", "parallel", "reduction"]
// CHECK:         arith.mulf {{.*}} {mlirstack.tf32} : f32
// BOTH-LABEL:  func.func @main(
// BOTH:          arith.mulf {{.*}} {mlirstack.tf32} : f32
// BOTH:          arith.extf
// BOTH-NOT:      mlirstack.tf32
// BOTH:          iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]
// BOTH:          arith.mulf {{.*}} {mlirstack.tf32} : f32
// UNKNOWN: no f32 ops are called 'conv'
// UNKNOWN: matmul, convolution
func.func @main(%a: tensor<4x8xf32>, %b: tensor<8x5xf32>, %c: tensor<4x5xf32>, %h: tensor<4x8xf16>, %i: tensor<8x5xf16>,
                %x: tensor<1x3x9x9xf32>, %w: tensor<6x3x1x1xf32>, %y: tensor<1x6x9x9xf32>)
    -> (tensor<4x5xf32>, tensor<4x5xf32>, tensor<1x6x9x9xf32>) {
  %0 = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x5xf32>) outs(%c : tensor<4x5xf32>) -> tensor<4x5xf32>
  %1 = linalg.matmul ins(%h, %i : tensor<4x8xf16>, tensor<8x5xf16>) outs(%c : tensor<4x5xf32>) -> tensor<4x5xf32>
  %2 = linalg.conv_2d_nchw_fchw {strides = dense<1> : vector<2xi64>, dilations = dense<1> : vector<2xi64>}
      ins(%x, %w : tensor<1x3x9x9xf32>, tensor<6x3x1x1xf32>) outs(%y : tensor<1x6x9x9xf32>) -> tensor<1x6x9x9xf32>
  return %0, %1, %2 : tensor<4x5xf32>, tensor<4x5xf32>, tensor<1x6x9x9xf32>
}
