// The passes around entry points of buffers: described, and exported with a calling convention of one pointer.
// RUN: mlirstack-opt %s --mlirstack-describe-entries | FileCheck %s --check-prefix=DESCRIBE
// RUN: mlirstack-opt %s --mlirstack-describe-entries --convert-to-llvm --mlirstack-export-entries | FileCheck %s --check-prefix=EXPORT

// DESCRIBE:       func.func @main(
// DESCRIBE-SAME:    llvm.emit_c_interface
// DESCRIBE-SAME:    mlirstack.abi = "main(
// EXPORT:         llvm.func internal @main(
// EXPORT:         llvm.func @mlirstack_main(%[[FRAME:.*]]: !llvm.ptr)
// EXPORT:           llvm.getelementptr %[[FRAME]]
// EXPORT:         llvm.mlir.global external constant @mlirstack_abi("main(
func.func @main(%x: memref<4xf32> {mlirstack.argument = 0 : i64}, %y: memref<4xf32> {bufferize.result}) {
  return
}
