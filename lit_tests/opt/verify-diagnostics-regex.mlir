// Mistakes in the regular expression of an expectation, in the words of LLVM.
// RUN: not mlirstack-opt %s --verify-diagnostics 2>&1 | FileCheck %s

// CHECK: error: invalid regex: parentheses not balanced
// expected-error-re {{an {{(open group}} }}
// CHECK: error: invalid regex: repetition-operator operand invalid
// expected-error-re {{a repeated {{*}} }}
