// The log-sum-exp of attention's scores leaves the kernel of the attention, though it was summed up a second time.
// RUN: mlirstack-opt %s --mlirstack-form-dispatches=arch=sm_90a | FileCheck %s

// CHECK:       func.func private @kernel_attention_0(
// CHECK-SAME:    -> (tensor<2x64x32xf16>, tensor<2x64xf32>)
// CHECK-SAME:    mlirstack.schedule = {{{.*}}kernel = "wgmma"{{.*}}name = "attention"
// CHECK:         math.log
// CHECK-LABEL: func.func @main(
// CHECK:         %[[BOTH:.*]]:2 = call @kernel_attention_0(
// CHECK-NOT:     call
// CHECK:         return %[[BOTH]]#0, %[[BOTH]]#1
#query = affine_map<(b, i, j, k) -> (b, i, k)>
#key = affine_map<(b, i, j, k) -> (b, j, k)>
#product = affine_map<(b, i, j, k) -> (b, i, j)>
#value = affine_map<(b, i, d, j) -> (b, j, d)>
#weight = affine_map<(b, i, d, j) -> (b, i, j)>
#line = affine_map<(b, i, d, j) -> (b, i)>
#full = affine_map<(b, i, j) -> (b, i, j)>
#row = affine_map<(b, i, j) -> (b, i)>
#same = affine_map<(b, i) -> (b, i)>
func.func @main(%q: tensor<2x64x32xf16>, %k: tensor<2x64x32xf16>, %v: tensor<2x64x32xf16>)
    -> (tensor<2x64x32xf16>, tensor<2x64xf32>) {
  %lowest = arith.constant 0xFF800000 : f32
  %infinity = arith.constant 0x7F800000 : f32
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %empty = tensor.empty() : tensor<2x64x64xf32>
  %rows = tensor.empty() : tensor<2x64xf32>
  %columns = tensor.empty() : tensor<2x64x32xf32>
  %rounded = tensor.empty() : tensor<2x64x32xf16>
  %0 = linalg.fill ins(%zero : f32) outs(%empty : tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  %scores = linalg.generic {indexing_maps = [#query, #key, #product], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<2x64x32xf16>, tensor<2x64x32xf16>) outs(%0 : tensor<2x64x64xf32>) {
  ^bb0(%a: f16, %b: f16, %o: f32):
    %x = arith.extf %a : f16 to f32
    %y = arith.extf %b : f16 to f32
    %m = arith.mulf %x, %y : f32
    %r = arith.addf %o, %m : f32
    linalg.yield %r : f32
  } -> tensor<2x64x64xf32>
  %1 = linalg.fill ins(%lowest : f32) outs(%rows : tensor<2x64xf32>) -> tensor<2x64xf32>
  %max = linalg.generic {indexing_maps = [#full, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%scores : tensor<2x64x64xf32>) outs(%1 : tensor<2x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.maximumf %a, %o : f32
    linalg.yield %r : f32
  } -> tensor<2x64xf32>
  %exp = linalg.generic {indexing_maps = [#full, #row, #full], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%scores, %max : tensor<2x64x64xf32>, tensor<2x64xf32>) outs(%empty : tensor<2x64x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %d = arith.subf %a, %b : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<2x64x64xf32>
  %2 = linalg.fill ins(%zero : f32) outs(%rows : tensor<2x64xf32>) -> tensor<2x64xf32>
  %sum = linalg.generic {indexing_maps = [#full, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%exp : tensor<2x64x64xf32>) outs(%2 : tensor<2x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.addf %a, %o : f32
    linalg.yield %r : f32
  } -> tensor<2x64xf32>
  %inverse = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%sum : tensor<2x64xf32>) outs(%rows : tensor<2x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.divf %one, %a : f32
    linalg.yield %r : f32
  } -> tensor<2x64xf32>
  %3 = linalg.fill ins(%zero : f32) outs(%columns : tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  %attended = linalg.generic {indexing_maps = [#weight, #line, #value, #product], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%exp, %inverse, %v : tensor<2x64x64xf32>, tensor<2x64xf32>, tensor<2x64x32xf16>) outs(%3 : tensor<2x64x32xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f16, %o: f32):
    %w = arith.mulf %a, %b : f32
    %x = arith.extf %c : f16 to f32
    %m = arith.mulf %w, %x : f32
    %r = arith.addf %o, %m : f32
    linalg.yield %r : f32
  } -> tensor<2x64x32xf32>
  %result = linalg.generic {indexing_maps = [#full, #full], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%attended : tensor<2x64x32xf32>) outs(%rounded : tensor<2x64x32xf16>) {
  ^bb0(%a: f32, %o: f16):
    %r = arith.truncf %a : f32 to f16
    linalg.yield %r : f16
  } -> tensor<2x64x32xf16>
  %shift = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%max : tensor<2x64xf32>) outs(%rows : tensor<2x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %size = math.absf %a : f32
    %is = arith.cmpf oeq, %size, %infinity : f32
    %r = arith.select %is, %zero, %a : f32
    linalg.yield %r : f32
  } -> tensor<2x64xf32>
  %again = linalg.generic {indexing_maps = [#full, #row, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%scores, %shift : tensor<2x64x64xf32>, tensor<2x64xf32>) outs(%2 : tensor<2x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %d = arith.subf %a, %b : f32
    %e = math.exp %d : f32
    %r = arith.addf %e, %o : f32
    linalg.yield %r : f32
  } -> tensor<2x64xf32>
  %logsumexp = linalg.generic {indexing_maps = [#same, #same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%again, %shift : tensor<2x64xf32>, tensor<2x64xf32>) outs(%rows : tensor<2x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %l = math.log %a : f32
    %r = arith.addf %l, %b : f32
    linalg.yield %r : f32
  } -> tensor<2x64xf32>
  return %result, %logsumexp : tensor<2x64x32xf16>, tensor<2x64xf32>
}
