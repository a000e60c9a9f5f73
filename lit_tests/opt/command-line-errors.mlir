// Wrong use of flags: a message that names the flag, exit status 1.
// RUN: not mlirstack-opt %s --canonicalise 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not mlirstack-opt %s --verify-each=maybe 2>&1 | FileCheck %s --check-prefix=BOOL
// RUN: not mlirstack-opt %s --mlir-elide-elementsattrs-if-larger=many 2>&1 | FileCheck %s --check-prefix=UINT
// RUN: not mlirstack-opt %s --mlir-timing-display=tre 2>&1 | FileCheck %s --check-prefix=CHOICE
// RUN: not mlirstack-opt %s other.mlir 2>&1 | FileCheck %s --check-prefix=TWO
// RUN: not mlirstack-opt %s -o 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: not mlirstack-opt %s.missing 2>&1 | FileCheck %s --check-prefix=FILE
// RUN: not mlirstack-opt %s -o /nonexistent/out.mlir 2>&1 | FileCheck %s --check-prefix=OUT
// RUN: not mlirstack-opt %s --mlir-print-ir-after=canonicalise 2>&1 | FileCheck %s --check-prefix=PASS
// RUN: not mlirstack-opt %s --pipeline=cpuu 2>&1 | FileCheck %s --check-prefix=TARGET
// RUN: not mlirstack-opt %s --pipeline=cpu --from=lnalg 2>&1 | FileCheck %s --check-prefix=STAGE

// UNKNOWN: Unknown command line argument '--canonicalise'
// UNKNOWN: Did you mean '--canonicalize'
// BOOL: for the --verify-each option: 'maybe' is invalid value for boolean argument! Try 0 or 1
// UINT: for the --mlir-elide-elementsattrs-if-larger option: 'many' value invalid for uint argument!
// CHOICE: for the --mlir-timing-display option: Cannot find option named 'tre'!
// TWO: Too many positional arguments specified!
// VALUE: for the -o option: requires a value!
// FILE: cannot open input file '{{.*}}.missing': No such file or directory
// OUT: cannot open output file '/nonexistent/out.mlir'
// PASS: for the --mlir-print-ir-after option: Cannot find option named 'canonicalise'!
// TARGET: unknown target 'cpuu'; nearest: cpu
// STAGE: pipeline 'cpu' has no stage 'lnalg'; nearest: linalg
func.func private @f()
