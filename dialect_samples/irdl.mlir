// # irdl: dialects as data
//
// For: defining ops, types and their constraints in IR: a verifier without C++.
// Level: outside the stack: it makes dialects for any level.
// Before: a definition by hand, or Python classes (see python_dialect.py). After: a registered dialect.
// Natural here: trying out an abstraction before building it.
// Try: mlirstack-opt dialect_samples/irdl.mlir
//
// RUN: mlirstack-opt %s | FileCheck %s
// RUN: mlirstack-opt %S/Inputs/pair.mlir --irdl-file=%s --split-input-file --verify-diagnostics

// A type with a parameter, and an op whose operands must be such pairs of one element type.
// CHECK: irdl.dialect @pair
// CHECK:   irdl.type @of
// CHECK:   irdl.operation @swap
irdl.dialect @pair {
  irdl.type @of {
    %i32 = irdl.is i32
    %f32 = irdl.is f32
    %element = irdl.any_of(%i32, %f32)
    irdl.parameters(element: %element)
  }
  irdl.operation @swap {
    %element = irdl.any
    %pair = irdl.parametric @pair::@of<%element>
    irdl.operands(in: %pair)
    irdl.results(out: %pair)
  }
}
