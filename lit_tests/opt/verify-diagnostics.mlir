// Every form of expectation; the run succeeds as all of them are met and nothing else is reported.
// RUN: mlirstack-opt %s --split-input-file --verify-diagnostics

func.func @same_line(%x: i32) -> i32 {
  return %y : i32 // expected-error {{use of undeclared SSA value name}}
}

// -----

func.func @next_line(%x: i32) -> i32 {
  // expected-error@+1 {{undeclared}}
  return %y : i32
}

// -----

func.func @line_before(%x: i32) -> i32 {
  return %y : i32
  // expected-error@-1 {{undeclared}}
}

// -----

func.func @below(%x: i32) -> i32 {
  // expected-error@below {{undeclared}}
  return %y : i32
}

// -----

func.func @above(%x: i32) -> i32 {
  return %y : i32
  // expected-error@above {{undeclared}}
}

// -----

func.func @regex(%x: i32) -> i32 {
  // expected-error-re @+1 {{use of {{[a-z]+}} SSA value}}
  return %y : i32
}

// -----

// Several expectations before one line; notes are checked too.
// expected-note @below {{prior use here}}
func.func @notes(%x: i32) -> i32 {
  // expected-error @below {{use of value '%x' expects different type than prior uses}}
  return %x : i64
}
