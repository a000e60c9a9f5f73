// # sparse_tensor: storage as part of the type
//
// For: tensors of which most elements are zero; the encoding in the type says how the others are stored.
// Level: linalg, then loops.
// Before: linalg with encodings. After: scf loops over positions and coordinates.
// Natural here: generating the loops that visit only stored elements, for any format, from one description of the computation.
// Try: mlirstack-opt dialect_samples/sparse_tensor.mlir --linalg-generalize-named-ops --sparse-reinterpret-map --sparsification
//
// RUN: mlirstack-opt %s --linalg-generalize-named-ops --sparse-reinterpret-map --sparsification | FileCheck %s

// y += A x for A in compressed rows: the inner loop runs from the position where the row begins to where the next one does.
// CHECK-LABEL: func.func @matvec(
// CHECK-DAG:   %[[POSITIONS:.*]] = sparse_tensor.positions %{{.*}} {level = 1 : index}
// CHECK-DAG:   %[[COLUMNS:.*]] = sparse_tensor.coordinates %{{.*}} {level = 1 : index}
// CHECK-DAG:   %[[VALUES:.*]] = sparse_tensor.values
// CHECK:       scf.for %[[ROW:.*]] = %c0
// CHECK:         %[[BEGIN:.*]] = memref.load %[[POSITIONS]][%[[ROW]]]
// CHECK:         %[[END:.*]] = memref.load %[[POSITIONS]]
// CHECK:         scf.for %[[P:.*]] = %[[BEGIN]] to %[[END]]
// CHECK:           memref.load %[[COLUMNS]][%[[P]]]
// CHECK:           memref.load %[[VALUES]][%[[P]]]
#CSR = #sparse_tensor.encoding<{map = (d0, d1) -> (d0 : dense, d1 : compressed)}>
func.func @matvec(%a: tensor<64x64xf32, #CSR>, %x: tensor<64xf32>, %y: tensor<64xf32>) -> tensor<64xf32> {
  %0 = linalg.matvec ins(%a, %x : tensor<64x64xf32, #CSR>, tensor<64xf32>) outs(%y : tensor<64xf32>) -> tensor<64xf32>
  return %0 : tensor<64xf32>
}
