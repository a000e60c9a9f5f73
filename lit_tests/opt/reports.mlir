// Timing and statistics.
// RUN: mlirstack-opt %s --pass-pipeline='builtin.module(func.func(cse,canonicalize),inline)' --mlir-timing -o /dev/null 2>&1 | FileCheck %s --check-prefix=TREE
// RUN: mlirstack-opt %s --pass-pipeline='builtin.module(func.func(cse,canonicalize),inline)' --mlir-timing --mlir-timing-display=list -o /dev/null 2>&1 | FileCheck %s --check-prefix=LIST
// RUN: mlirstack-opt %s --cse --mlir-timing --mlir-output-format=json -o /dev/null 2>%t.json && %python -m json.tool %t.json | FileCheck %s --check-prefix=JSON
// RUN: mlirstack-opt %s --cse --mlir-pass-statistics -o /dev/null 2>&1 | FileCheck %s --check-prefix=STATISTICS
// RUN: mlirstack-opt %s --cse --mlir-pass-statistics --mlir-pass-statistics-display=list -o /dev/null 2>&1 | FileCheck %s --check-prefix=STATISTICS

// TREE:      ... Execution time report ...
// TREE:      Total Execution Time:
// TREE:      ----Wall Time----  ----Name----
// TREE-NEXT: {{%\)  }}Parser
// TREE-NEXT: {{%\)  }}'func.func' Pipeline
// TREE-NEXT: {{%\)    }}CSEPass
// TREE:      {{%\)    }}CanonicalizerPass
// TREE-NEXT: {{%\)  }}InlinerPass
// TREE:      {{%\)  }}Output
// TREE-NEXT: {{%\)  }}Rest
// TREE-NEXT: (100.0%)  Total

// LIST: (100.0%)  root
// LIST-DAG: CSEPass
// LIST-DAG: CanonicalizerPass
// LIST: Rest
// LIST-NEXT: Total

// JSON: "name": "Parser"
// JSON: "name": "CSEPass"
// JSON: "name": "Total"

// STATISTICS: Pass statistics report
func.func @f() {
  return
}
