// The graph as kernels with a schedule each, and what stands between them after bufferization as kernels of their own.
// RUN: mlirstack-opt %s --mlirstack-form-dispatches=arch=sm_80 | FileCheck %s
// RUN: mlirstack-opt %s --mlirstack-form-dispatches %bufferize --canonicalize --mlirstack-outline-copies | FileCheck %s --check-prefix=COPIES

// A row softmax is one kernel; rows that are selected by data are read as vectors.
// CHECK-LABEL: func.func private @kernel_reduction_0(
// CHECK-SAME:    mlirstack.kernel = "reduction", mlirstack.schedule = {{{.*}}name = "rows"
// CHECK-COUNT-5: linalg.generic
// CHECK-LABEL: func.func private @kernel_other_0(
// CHECK-SAME:    mlirstack.schedule = {name = "elementwise"
// CHECK:         tensor.extract
// CHECK-LABEL: func.func @main(
// CHECK:         call @kernel_reduction_0(
// CHECK:         call @kernel_other_0(

// A slice with gaps that is returned is a copy, and a kernel.
// COPIES:       func.func private @kernel_copy_0(%[[FROM:.*]]: memref<4x8xf32, strided<[64, 1]>>, %[[TO:.*]]: memref<4x8xf32>
// COPIES-SAME:    mlirstack.schedule = {name = "general"}
// COPIES:         memref.copy %[[FROM]], %[[TO]]
// COPIES-LABEL: func.func @main(
// COPIES-NOT:     memref.copy
// COPIES:         call @kernel_copy_0(
#full = affine_map<(r, c) -> (r, c)>
#row = affine_map<(r, c) -> (r)>
#one = affine_map<(r) -> (r)>
func.func @main(%x: tensor<4x64xf32>, %which: tensor<4xi32>, %table: tensor<4x64xf32>)
    -> (tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x8xf32>) {
  %lowest = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %rows = tensor.empty() : tensor<4xf32>
  %empty = tensor.empty() : tensor<4x64xf32>
  %0 = linalg.fill ins(%lowest : f32) outs(%rows : tensor<4xf32>) -> tensor<4xf32>
  %max = linalg.generic {indexing_maps = [#full, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x64xf32>) outs(%0 : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.maximumf %a, %o : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %exp = linalg.generic {indexing_maps = [#full, #row, #full], iterator_types = ["parallel", "parallel"]}
      ins(%x, %max : tensor<4x64xf32>, tensor<4xf32>) outs(%empty : tensor<4x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %d = arith.subf %a, %b : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<4x64xf32>
  %1 = linalg.fill ins(%zero : f32) outs(%rows : tensor<4xf32>) -> tensor<4xf32>
  %sum = linalg.generic {indexing_maps = [#full, #row], iterator_types = ["parallel", "reduction"]}
      ins(%exp : tensor<4x64xf32>) outs(%1 : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.addf %a, %o : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %inverse = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]}
      ins(%sum : tensor<4xf32>) outs(%rows : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.divf %one, %a : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %softmax = linalg.generic {indexing_maps = [#full, #row, #full], iterator_types = ["parallel", "parallel"]}
      ins(%exp, %inverse : tensor<4x64xf32>, tensor<4xf32>) outs(%empty : tensor<4x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.mulf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<4x64xf32>
  %selected = linalg.generic {indexing_maps = [#row, #full], iterator_types = ["parallel", "parallel"]}
      ins(%which : tensor<4xi32>) outs(%empty : tensor<4x64xf32>) {
  ^bb0(%i: i32, %o: f32):
    %position = arith.index_cast %i : i32 to index
    %high = arith.minsi %position, %c3 : index
    %inside = arith.maxsi %high, %c0 : index
    %column = linalg.index 1 : index
    %r = tensor.extract %table[%inside, %column] : tensor<4x64xf32>
    linalg.yield %r : f32
  } -> tensor<4x64xf32>
  %slice = tensor.extract_slice %x[0, 0] [4, 8] [1, 1] : tensor<4x64xf32> to tensor<4x8xf32>
  return %softmax, %selected, %slice : tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x8xf32>
}
