// # pdl: rewrite patterns as data
//
// For: patterns over any dialect, matched by a small byte-code machine; they can be added without building a compiler.
// Level: beside the payload, at every level.
// Before: patterns written by hand or by PDLL. After: pdl_interp, a decision tree shared by all patterns.
// Natural here: peephole rules of somebody who has the tool but not its sources.
// Try: mlirstack-opt dialect_samples/pdl.mlir --pass-pipeline='builtin.module(convert-pdl-to-pdl-interp)'
//
// RUN: mlirstack-opt %s --convert-pdl-to-pdl-interp | FileCheck %s
// RUN: mlirstack-opt %s --mlir-print-op-generic | mlirstack-opt | FileCheck %s --check-prefix=ROUND_TRIP

// The pattern "x - x is 0", and the tree that matches it.
// ROUND_TRIP: pdl.pattern @difference_with_itself : benefit(1)
// CHECK:      pdl_interp.func @matcher(
// CHECK:        pdl_interp.check_operation_name of %{{.*}} is "arith.subi"
// CHECK:        pdl_interp.are_equal
// CHECK:        pdl_interp.record_match @rewriters::@
// CHECK:      module @rewriters
// CHECK:        pdl_interp.create_operation "arith.constant"
// CHECK:        pdl_interp.replace
pdl.pattern @difference_with_itself : benefit(1) {
  %type = type : i32
  %x = operand : %type
  %difference = operation "arith.subi"(%x, %x : !pdl.value, !pdl.value) -> (%type : !pdl.type)
  rewrite %difference {
    %zero = attribute = 0 : i32
    %constant = operation "arith.constant" {"value" = %zero} -> (%type : !pdl.type)
    replace %difference with %constant
  }
}
