// # async: tasks and what they promise
//
// For: work that may run later or elsewhere, tokens and values to wait for.
// Level: loops.
// Before: scf.parallel, gpu host code. After: coroutines in llvm, with calls of a runtime (which the wheels do not ship).
// Natural here: splitting parallel loops into tasks, reference counting of tokens.
// Try: mlirstack-opt dialect_samples/async.mlir --async-to-async-runtime
//
// RUN: mlirstack-opt %s --async-to-async-runtime | FileCheck %s --check-prefix=RUNTIME
// RUN: mlirstack-opt %s --async-parallel-for='num-workers=4 min-task-size=16' | FileCheck %s --check-prefix=TASKS

// The body becomes a coroutine, which suspends and is resumed by the runtime.
// RUNTIME-LABEL: func.func private @async_execute_fn
// RUNTIME:         async.coro.begin
// RUNTIME:         async.runtime.resume
// RUNTIME:         async.runtime.set_available
func.func @later(%x: f32, %m: memref<1xf32>) {
  %c0 = arith.constant 0 : index
  %token = async.execute {
    memref.store %x, %m[%c0] : memref<1xf32>
    async.yield
  }
  async.await %token : !async.token
  return
}

// TASKS-LABEL: func.func @fill(
// TASKS:         async.create_group
// TASKS:         async.await_all
// TASKS:       func.func private @parallel_compute_fn
func.func @fill(%m: memref<1024xf32>, %x: f32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c1024 = arith.constant 1024 : index
  scf.parallel (%i) = (%c0) to (%c1024) step (%c1) {
    memref.store %x, %m[%i] : memref<1024xf32>
  }
  return
}
