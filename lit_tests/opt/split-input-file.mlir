// Parts of a file are processed one by one; a failing part does not stop the others, and locations are those of the file.
// RUN: not mlirstack-opt %s --split-input-file 2>%t.err | FileCheck %s
// RUN: FileCheck %s --check-prefix=ERROR < %t.err
// RUN: not mlirstack-opt %s --split-input-file --output-split-marker='// next' 2>/dev/null | FileCheck %s --check-prefix=MARKER
// RUN: printf 'module @a {}\n// --%%s\nmodule @b {}\n' -- | mlirstack-opt --split-input-file 2>&1 | FileCheck %s --check-prefix=NEAR

// CHECK: func.func private @first()
// MARKER: func.func private @first()
func.func private @first()

// CHECK: // {{-----}}
// MARKER: {{^// next$}}
// NEAR: <stdin>:2:7: warning: near miss with file split marker
// -----

func.func @second() {
  // ERROR: split-input-file.mlir:[[#@LINE+3]]:20: error: operation being parsed with an unregistered dialect
  return
}
"test.unregistered"() : () -> ()

// CHECK: // {{-----}}
// CHECK-NEXT: module {
// -----

// CHECK: func.func private @third()
func.func private @third()
