// What the type of a memref tells is not passed: kernels and entry points take addresses, and a frame is read for them.
// RUN: mlirstack-opt %s --mlirstack-describe-entries --mlirstack-bare-pointers | FileCheck %s --check-prefix=MARK
// RUN: mlirstack-opt %s --mlirstack-describe-entries --mlirstack-bare-pointers --convert-to-llvm --mlirstack-export-entries \
// RUN:   | FileCheck %s --check-prefix=EXPORT

// MARK:        func.func private @static({{.*}}) attributes {llvm.bareptr}
// MARK:        func.func private @dynamic({{.*}}memref<?xf32>) {
// MARK:        func.func private @strided({{.*}}strided<[2]>>) {
// MARK:        func.func private @returned({{.*}} -> memref<4xf32> {
// MARK:        func.func @main({{.*}} attributes {{{.*}}llvm.bareptr
// EXPORT:      llvm.func internal @static(%{{.*}}: !llvm.ptr, %{{.*}}: i64)
// EXPORT:      llvm.func internal @main(%{{[^,]*}}: !llvm.ptr {{[^,]*}}, %{{[^,]*}}: i64 {{[^,]*}})
// EXPORT:      llvm.func @mlirstack_main(%[[FRAME:.*]]: !llvm.ptr)
// EXPORT:        llvm.getelementptr %[[FRAME]]
// EXPORT-NEXT:   %[[DESCRIPTOR:.*]] = llvm.load
// EXPORT-NEXT:   %[[SECOND:.*]] = llvm.getelementptr %[[DESCRIPTOR]][1]
// EXPORT-NEXT:   %[[ALIGNED:.*]] = llvm.load %[[SECOND]]
// EXPORT:        llvm.call @main(%[[ALIGNED]], %{{.*}}) : (!llvm.ptr, i64) -> ()
func.func private @static(%a: memref<4x2xf32>, %n: i64) {
  return
}
func.func private @dynamic(%a: memref<?xf32>) {
  return
}
func.func private @strided(%a: memref<4xf32, strided<[2]>>) {
  return
}
func.func private @returned(%a: memref<4xf32>) -> memref<4xf32> {
  return %a : memref<4xf32>
}
func.func @main(%x: memref<4x2xf32> {mlirstack.argument = 0 : i64}, %n: i64 {mlirstack.argument = 1 : i64}) {
  call @static(%x, %n) : (memref<4x2xf32>, i64) -> ()
  return
}
