// What is wrong with a part as a whole is reported where the part begins, the line of its marker.
// RUN: mlirstack-opt %s --no-implicit-module --split-input-file --verify-diagnostics
func.func private @one()

// -----
// expected-error@-1 {{source must contain a single top-level operation, found: 2}}
func.func private @first()
func.func private @second()
