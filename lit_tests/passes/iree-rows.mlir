// Rows of static length as kernels for processors inside IREE's modules: cut out, chosen, over one row, entered, embedded.
// RUN: mlirstack-opt %s --mlirstack-iree-regions | FileCheck %s --check-prefix=REGIONS
// RUN: mlirstack-opt %s --mlirstack-iree-regions --mlirstack-iree-linked-kernels | FileCheck %s --check-prefix=ROWS
// RUN: mlirstack-opt %s --mlirstack-iree-regions --mlirstack-iree-linked-kernels --mlirstack-iree-split='alignment=1' --mlirstack-iree-one-row | FileCheck %s --check-prefix=ONE
// RUN: mlirstack-opt %S/Inputs/iree-row.mlir --mlirstack-iree-export-linked | FileCheck %s --check-prefix=ENTRY
// RUN: mlirstack-opt %S/Inputs/iree-row.mlir --mlirstack-iree-export-linked --mlirstack-iree-translate-linked | FileCheck %s --check-prefix=CODE
// RUN: not mlirstack-opt %S/Inputs/iree-row.mlir --mlirstack-iree-export-linked --mlirstack-iree-translate-linked --mlirstack-compile-object='cpu=x86-64-v3 freestanding=true' --mlirstack-iree-embed-linked 2>&1 | FileCheck %s --check-prefix=ALONE

// The reduction and what follows it, between two products.
// REGIONS:      module attributes {mlirstack.program = dense<
// REGIONS:        func.func private @kernel_region_0(
// REGIONS-NOT:      linalg.matmul
// REGIONS:          linalg.reduce
// REGIONS:          linalg.generic
// REGIONS-NOT:    @main

// The program again; the kernel follows the loop over rows with what it reads and writes of each.
// ROWS:         func.func private @kernel_reduction_0(
// ROWS-SAME:      mlirstack.rows = [array<i64: 0>, array<i64>, array<i64: 0>]
// ROWS:         func.func @main(
// ROWS:           linalg.matmul
// ROWS:           call @kernel_reduction_0(
// ROWS:           linalg.matmul

// ONE:          func.func private @kernel_reduction_0(%{{.*}}: tensor<1x64xf32>, %{{.*}}: tensor<1x64xf32>) -> tensor<1x64xf32>
// ONE:            linalg.reduce {{.*}} ins(%{{.*}} : tensor<1x64xf32>)

// ENTRY:        llvm.func internal @k(%{{.*}}: !llvm.ptr {llvm.noalias}, %{{.*}}: !llvm.ptr {llvm.noalias}) attributes {{.*}}passthrough = ["no-builtins"]
// ENTRY:        llvm.func @mlirstack_k(%[[X:.*]]: !llvm.ptr, %[[AT:.*]]: i64, %{{.*}}: !llvm.ptr, %{{.*}}: i64)
// ENTRY:          %[[ROW:.*]] = llvm.getelementptr %[[X]][%[[AT]]] : (!llvm.ptr, i64) -> !llvm.ptr, i8
// ENTRY:          llvm.call @k(%[[ROW]], %{{.*}})

// CODE:         ; mlirstack.program
// CODE:         define void @mlirstack_k(ptr %0, i64 %1, ptr %2, i64 %3)
// CODE:         "no-builtins"

// ALONE:        this object comes without the program that calls it

#row = affine_map<(d0, d1) -> (d0, d1)>
#one = affine_map<(d0, d1) -> (d0)>
func.func @main(%x: tensor<?x64xf32>, %w: tensor<64x64xf32>) -> tensor<?x64xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %rows = tensor.dim %x, %c0 : tensor<?x64xf32>
  %empty = tensor.empty(%rows) : tensor<?x64xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x64xf32>) -> tensor<?x64xf32>
  %y = linalg.matmul ins(%x, %w : tensor<?x64xf32>, tensor<64x64xf32>) outs(%init : tensor<?x64xf32>) -> tensor<?x64xf32>
  %column = tensor.empty(%rows) : tensor<?xf32>
  %start = linalg.fill ins(%zero : f32) outs(%column : tensor<?xf32>) -> tensor<?xf32>
  %most = linalg.reduce { arith.maximumf } ins(%y : tensor<?x64xf32>) outs(%start : tensor<?xf32>) dimensions = [1]
  %z = linalg.generic {indexing_maps = [#row, #one, #row], iterator_types = ["parallel", "parallel"]}
      ins(%y, %most : tensor<?x64xf32>, tensor<?xf32>) outs(%empty : tensor<?x64xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<?x64xf32>
  %end = linalg.matmul ins(%z, %w : tensor<?x64xf32>, tensor<64x64xf32>) outs(%init : tensor<?x64xf32>) -> tensor<?x64xf32>
  return %end : tensor<?x64xf32>
}
