// The forms in which the result is printed.
// RUN: mlirstack-opt %s --mlir-print-op-generic | FileCheck %s --check-prefix=GENERIC
// RUN: mlirstack-opt %s --mlir-print-debuginfo | FileCheck %s --check-prefix=DEBUG
// RUN: mlirstack-opt --mlir-print-debuginfo < %s | FileCheck %s --check-prefix=STDIN
// RUN: mlirstack-opt %s --mlir-print-debuginfo --mlir-pretty-debuginfo | FileCheck %s --check-prefix=PRETTY
// RUN: mlirstack-opt %s --mlir-print-local-scope | FileCheck %s --check-prefix=LOCAL
// RUN: mlirstack-opt %s --mlir-print-skip-regions | FileCheck %s --check-prefix=SKIP
// RUN: mlirstack-opt %s --mlir-use-nameloc-as-prefix | FileCheck %s --check-prefix=NAMES
// RUN: mlirstack-opt %s --mlir-elide-elementsattrs-if-larger=4 | FileCheck %s --check-prefix=ELIDE
// RUN: mlirstack-opt %s --mlir-elide-resource-strings-if-larger=4 | FileCheck %s --check-prefix=RESOURCE
// RUN: mlirstack-opt %s --mlir-print-value-users | FileCheck %s --check-prefix=USERS

// GENERIC: "func.func"() <{function_type = (tensor<8xf32>) -> tensor<8xf32>, sym_name = "f"}>
// DEBUG: loc("{{.*}}printing.mlir":[[#]]:
// STDIN: loc("<stdin>":[[#]]:
// PRETTY: "total"
// LOCAL: affine_map<(d0) -> (d0)>
// SKIP: module {...}
// NAMES: %total = arith.addf
// ELIDE: dense_resource<__elided__>
// ELIDE-NOT: 1.000000e+00
// RESOURCE-NOT: 0x08000000
// USERS: func.func @f(%[[X:.*]]: tensor<8xf32>)
// USERS-NEXT: // %[[X]] is used by %[[SUM:.*]]
// USERS: %[[C:.*]] = arith.constant dense<[{{.*}} // user: %[[SUM]]
// USERS: %[[SUM]] = arith.addf {{.*}} // user: %[[RETURN:.*]]
// USERS: return %[[SUM]] : tensor<8xf32> // id: %[[RETURN]]
#map = affine_map<(d0) -> (d0)>
func.func @f(%x: tensor<8xf32>) -> tensor<8xf32> {
  %c = arith.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]> : tensor<8xf32>
  %sum = arith.addf %x, %c : tensor<8xf32> loc("total")
  return %sum : tensor<8xf32>
}
func.func private @g() attributes {test.map = #map, test.blob = dense_resource<blob> : tensor<2xi32>}

{-#
  dialect_resources: { builtin: { blob: "0x080000000100000002000000" } }
#-}
