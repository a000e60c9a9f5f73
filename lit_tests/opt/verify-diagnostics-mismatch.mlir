// What is not as expected is reported at its place, and fails the run.
// RUN: not mlirstack-opt %s --split-input-file --verify-diagnostics 2>&1 | FileCheck %s
// RUN: not mlirstack-opt %s --split-input-file --verify-diagnostics=only-expected 2>&1 | FileCheck %s --check-prefix=ONLY

// CHECK: mismatch.mlir:[[#@LINE+2]]:10: error: unexpected error: use of undeclared SSA value name
func.func @nothing_expected() -> i32 {
  return %y : i32
}

// -----

// CHECK: mismatch.mlir:[[#@LINE+2]]:4: error: expected warning "never happens" was not produced
// ONLY: mismatch.mlir:[[#@LINE+1]]:4: error: expected warning "never happens" was not produced
// expected-warning {{never happens}}
func.func private @fine()

// -----

func.func @wrong_kind() -> i32 {
  // CHECK: mismatch.mlir:[[#@LINE+1]]:6: error: 'error' diagnostic emitted when expecting a 'remark'
  // expected-remark@+1 {{use of undeclared SSA value name}}
  return %y : i32
}

// -----

// CHECK: mismatch.mlir:[[#@LINE+1]]:4: error: invalid regex
// expected-error-re {{a{{[}}b}}
func.func private @also_fine()

// -----

// CHECK: <unknown>:0: error: expected error "of no place" was not produced
// expected-error@unknown {{of no place}}
func.func private @fine_too()
