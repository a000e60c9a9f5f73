// Reading: unknown dialects, the implicit module, errors with the line and a caret.
// RUN: not mlirstack-opt %s --split-input-file 2>&1 | FileCheck %s --check-prefix=UNREGISTERED --strict-whitespace
// RUN: mlirstack-opt %s --split-input-file --allow-unregistered-dialect 2>/dev/null | FileCheck %s --check-prefix=ALLOWED
// RUN: printf 'func.func @alone() { return }' | mlirstack-opt --no-implicit-module --canonicalize | FileCheck %s --check-prefix=ALONE
// RUN: cat %s | not mlirstack-opt --no-implicit-module --allow-unregistered-dialect 2>&1 | FileCheck %s --check-prefix=SEVERAL

// UNREGISTERED: parsing.mlir:[[#@LINE+3]]:11: error: operation being parsed with an unregistered dialect
// UNREGISTERED-NEXT:{{^  "new.op"\(\) : \(\) -> \(\)$}}
// UNREGISTERED-NEXT:{{^          \^$}}
  "new.op"() : () -> ()

// ALLOWED: "new.op"()
// -----

// ALLOWED: func.func private @fine()
// ALONE-NOT: module
// ALONE: func.func @alone()
// SEVERAL: source must contain a single top-level operation, found: 3
func.func private @fine()
func.func private @fine_too()
