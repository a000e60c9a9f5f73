// The general mapping: a thread an element, loops of a reduction inside; few long sums get a block each; what has an order
// runs on one thread.  Then the kernel functions are inlined, and the host is a straight line.
// RUN: mlirstack-opt %s --mlirstack-map-kernels --canonicalize --cse | FileCheck %s
// RUN: mlirstack-opt %s --mlirstack-map-kernels --mlirstack-launches --canonicalize --cse | FileCheck %s --check-prefix=HOST

// The fill is where the accumulator starts, the sum stays in a register, and 40 columns are 40 threads side by side.
// CHECK-LABEL: gpu.func @kernel_columns(
// CHECK-SAME:    mlirstack.bytes = 1760 : i64, mlirstack.flops = 400 : i64
// CHECK:         %[[START:.*]] = arith.constant 5.000000e-01 : f32
// CHECK:         scf.if
// CHECK:           %[[SUM:.*]] = scf.for {{.*}} iter_args(%[[OLD:.*]] = %[[START]])
// CHECK:             llvm.load
// CHECK:             arith.addf %[[OLD]]
// CHECK:           llvm.store %[[SUM]]

// CHECK-LABEL: gpu.func @kernel_total(
// CHECK:         arith.constant -0.000000e+00 : f32
// CHECK:         scf.for
// CHECK:         gpu.shuffle
// CHECK:         gpu.barrier
// CHECK:         gpu.shuffle

// Sizes travel as parameters.
// CHECK-LABEL: gpu.func @kernel_dynamic(%{{.*}}: index, %{{.*}}: index, %{{.*}}: !llvm.ptr, %{{.*}}: !llvm.ptr)
// CHECK:         math.exp

// A position that the data say is clamped.
// CHECK-LABEL: gpu.func @kernel_scatter(
// CHECK:         scf.for
// CHECK:           arith.minui
// CHECK:           llvm.store

// HOST-LABEL: func.func @main(
// HOST-NOT:     call @
// HOST:         gpu.launch_func @kernel_columns_device::@kernel_columns blocks in (%[[ONE:.*]], %[[ONE]], %[[ONE]])
// HOST:         gpu.launch_func @kernel_total_device::@kernel_total {{.*}}dynamic_shared_memory_size
// HOST:         %[[BLOCKS:.*]] = arith.ceildivui
// HOST:         gpu.launch_func @kernel_dynamic_device::@kernel_dynamic blocks in (%[[BLOCKS]],
// HOST:         gpu.launch_func @kernel_scatter_device::@kernel_scatter
#full = affine_map<(c, r) -> (r, c)>
#column = affine_map<(c, r) -> (c)>
#all = affine_map<(r, c) -> (r, c)>
#none = affine_map<(r, c) -> ()>
func.func private @kernel_columns(%x: memref<10x40xf32>, %out: memref<40xf32>) attributes {mlirstack.kernel = "other", mlirstack.schedule = {name = "general"}} {
  %half = arith.constant 0.5 : f32
  linalg.fill ins(%half : f32) outs(%out : memref<40xf32>)
  linalg.generic {indexing_maps = [#full, #column], iterator_types = ["parallel", "reduction"]}
      ins(%x : memref<10x40xf32>) outs(%out : memref<40xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  }
  return
}
func.func private @kernel_total(%x: memref<1000x40xf32>, %out: memref<f32>) attributes {mlirstack.kernel = "other", mlirstack.schedule = {name = "general"}} {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%out : memref<f32>)
  linalg.generic {indexing_maps = [#all, #none], iterator_types = ["reduction", "reduction"]}
      ins(%x : memref<1000x40xf32>) outs(%out : memref<f32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  }
  return
}
func.func private @kernel_dynamic(%x: memref<?x?xf32>, %out: memref<?x?xf32>) attributes {mlirstack.kernel = "other", mlirstack.schedule = {name = "general"}} {
  linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x : memref<?x?xf32>) outs(%out : memref<?x?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %e = math.exp %a : f32
    linalg.yield %e : f32
  }
  return
}
func.func private @kernel_scatter(%which: memref<5xi32>, %x: memref<5xf32>, %out: memref<9xf32>) attributes {mlirstack.kernel = "other", mlirstack.schedule = {name = "general"}} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c5 = arith.constant 5 : index
  scf.for %i = %c0 to %c5 step %c1 {
    %w = memref.load %which[%i] : memref<5xi32>
    %position = arith.index_cast %w : i32 to index
    %value = memref.load %x[%i] : memref<5xf32>
    memref.store %value, %out[%position] : memref<9xf32>
  }
  return
}
func.func @main(%x: memref<10x40xf32>, %y: memref<1000x40xf32>, %z: memref<?x?xf32>, %which: memref<5xi32>, %v: memref<5xf32>,
    %a: memref<40xf32>, %b: memref<f32>, %c: memref<?x?xf32>, %d: memref<9xf32>) {
  call @kernel_columns(%x, %a) : (memref<10x40xf32>, memref<40xf32>) -> ()
  call @kernel_total(%y, %b) : (memref<1000x40xf32>, memref<f32>) -> ()
  call @kernel_dynamic(%z, %c) : (memref<?x?xf32>, memref<?x?xf32>) -> ()
  call @kernel_scatter(%which, %v, %d) : (memref<5xi32>, memref<5xf32>, memref<9xf32>) -> ()
  return
}
