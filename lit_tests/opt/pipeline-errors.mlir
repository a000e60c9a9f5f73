// What is wrong with a pipeline is shown with a caret, and with the nearest valid names.
// RUN: not mlirstack-opt %s --pass-pipeline='builtin.module(canonicalize,func.func(cze))' 2>&1 | FileCheck %s --check-prefix=NAME --strict-whitespace
// RUN: not mlirstack-opt %s --pass-pipeline='builtin.module(cse' 2>&1 | FileCheck %s --check-prefix=OPEN --strict-whitespace
// RUN: not mlirstack-opt %s --pass-pipeline='builtin.module(canonicalize{max-iteration=3})' 2>&1 | FileCheck %s --check-prefix=OPTION --strict-whitespace
// RUN: not mlirstack-opt %s --pass-pipeline='func.func(cse)' 2>&1 | FileCheck %s --check-prefix=ANCHOR
// RUN: not mlirstack-opt %s --pass-pipeline='builtin.module(mlirstack-pin-broadcasts{remov=true})' 2>&1 | FileCheck %s --check-prefix=PYTHON
// RUN: not mlirstack-opt %s --pass-pipeline='builtin.module(cse)' --cse 2>&1 | FileCheck %s --check-prefix=BOTH

// NAME: 'cze' does not refer to a registered pass
// NAME: {{^  builtin.module\(canonicalize,func.func\(cze\)\)$}}
// NAME-NEXT: {{^                                        \^$}}
// NAME: nearest: cse

// OPEN: expected ')' before the end
// OPEN-NEXT: {{^  builtin.module\(cse$}}
// OPEN-NEXT: {{^                    \^$}}

// OPTION: no such option max-iteration
// OPTION: {{^  builtin.module\(canonicalize\{max-iteration=3\}\)$}}
// OPTION-NEXT: {{^                              \^$}}
// OPTION: nearest: max-iterations

// ANCHOR: can't run 'func.func' pass manager on 'builtin.module' op

// PYTHON: 'mlirstack-pin-broadcasts' has no option 'remov' (its options: remove)

// BOTH: '-pass-pipeline' option can't be used with individual pass options
