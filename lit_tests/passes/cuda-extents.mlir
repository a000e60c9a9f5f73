// One size that is known at run time only, that of outermost dimensions: kernels get it as a number, the host computes the
// grid from it.  Of more such sizes, or of one elsewhere, kernels are mapped by the general rules.
// RUN: mlirstack-opt %s --mlirstack-form-dispatches | FileCheck %s
// RUN: mlirstack-opt %s --mlirstack-form-dispatches %bufferize --mlirstack-map-kernels --canonicalize | FileCheck %s --check-prefix=MAPPED

// The most that the size can be goes along.
// CHECK-LABEL: func.func private @kernel_elementwise_0(
// CHECK-SAME:    tensor<?x48xf32> {mlirstack.most = array<i64: 1000, 48>}
// CHECK-SAME:    mlirstack.schedule = {name = "elementwise"
// CHECK-LABEL: func.func private @kernel_elementwise_1(
// CHECK-SAME:    mlirstack.schedule = {name = "general"}

// MAPPED:       gpu.func @kernel_elementwise_0(%{{.*}}: !llvm.ptr, %{{.*}}: !llvm.ptr, %[[ROWS:.*]]: i32) kernel
// MAPPED:         %[[ELEMENTS:.*]] = arith.muli %[[ROWS]], %{{.*}} : i32
// MAPPED-LABEL: func.func private @kernel_elementwise_0(
// MAPPED-SAME:    %[[X:.*]]: memref<?x48xf32> {{{.*}}}, %{{.*}}
// MAPPED-DAG:     %[[SIZE:.*]] = memref.dim %[[X]], %{{.*}}
// MAPPED-DAG:     arith.index_cast %{{.*}} : index to i32
// MAPPED-DAG:     %[[COUNT:.*]] = arith.muli %{{.*}}, %{{.*}} : index
// MAPPED:         %[[BLOCKS:.*]] = arith.ceildivsi %[[COUNT]], %{{.*}} : index
// MAPPED:         gpu.launch_func @kernel_elementwise_0_device::@kernel_elementwise_0 blocks in (%[[BLOCKS]],
#full = affine_map<(r, c) -> (r, c)>
func.func @main(%x: tensor<?x48xf32> {mlirstack.most = array<i64: 1000, 48>}, %y: tensor<?x?xf32>)
    -> (tensor<?x48xf32>, tensor<?x?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %rows = tensor.dim %x, %c0 : tensor<?x48xf32>
  %empty = tensor.empty(%rows) : tensor<?x48xf32>
  %0 = linalg.generic {indexing_maps = [#full, #full], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<?x48xf32>) outs(%empty : tensor<?x48xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.mulf %a, %a : f32
    linalg.yield %r : f32
  } -> tensor<?x48xf32>
  %m = tensor.dim %y, %c0 : tensor<?x?xf32>
  %n = tensor.dim %y, %c1 : tensor<?x?xf32>
  %other = tensor.empty(%m, %n) : tensor<?x?xf32>
  %1 = linalg.generic {indexing_maps = [#full, #full], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<?x?xf32>) outs(%other : tensor<?x?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.addf %a, %a : f32
    linalg.yield %r : f32
  } -> tensor<?x?xf32>
  return %0, %1 : tensor<?x48xf32>, tensor<?x?xf32>
}
