// A size that is multiplied and divided by the same number is itself; another number leaves it alone.
// RUN: mlirstack-opt %s --mlirstack-fold-sizes --canonicalize | FileCheck %s

// CHECK-LABEL: func.func @counted_and_divided(
// CHECK-SAME:    %[[X:.*]]: tensor<?x64xf32>
// CHECK:         %[[N:.*]] = tensor.dim %[[X]]
// CHECK-NEXT:    return %[[N]], %[[N]]
func.func @counted_and_divided(%x: tensor<?x64xf32>) -> (index, index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %n = tensor.dim %x, %c0 : tensor<?x64xf32>
  %elements = affine.apply affine_map<()[s0] -> (s0 * 64)>()[%n]
  %rows = arith.divsi %elements, %c64 : index
  %again = arith.muli %c64, %rows : index
  %same = arith.divui %again, %c64 : index
  return %rows, %same : index, index
}

// CHECK-LABEL: func.func @another_number(
// CHECK:         %[[HALF:.*]] = arith.divsi
// CHECK:         return %[[HALF]]
func.func @another_number(%n: index) -> index {
  %c32 = arith.constant 32 : index
  %elements = affine.apply affine_map<()[s0] -> (s0 * 64)>()[%n]
  %rows = arith.divsi %elements, %c32 : index
  return %rows : index
}
