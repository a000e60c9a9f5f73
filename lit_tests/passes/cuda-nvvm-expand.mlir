// Operations without a lowering of their own become calls of small functions in the gpu.module.
// RUN: mlirstack-opt %s --mlirstack-nvvm-expand | FileCheck %s

// Functions stand in front, each once.
// CHECK-DAG: func.func private @mlirstack_ipowi_i32(
// CHECK-DAG: func.func private @mlirstack_f8E4M3FN_to_f16(
// CHECK-DAG: func.func private @mlirstack_f32_to_f8E5M2(
// CHECK-DAG: func.func private @mlirstack_shuffle_xor_f64(
// CHECK-DAG: func.func private @mlirstack_subgroup_maximumf_bf16_32_1(
// CHECK-DAG: func.func private @mlirstack_isnormal_f32(

// CHECK-LABEL: gpu.func @integers(
// CHECK: call @mlirstack_ipowi_i32(
// CHECK-COUNT-4: call @mlirstack_ipowi_i32(
// CHECK: vector.from_elements

// CHECK-LABEL: gpu.func @floats(
// CHECK: %[[F32:.*]] = arith.truncf {{.*}} : f64 to f32
// CHECK: call @mlirstack_isnormal_f32(%[[F32]])
// CHECK: %[[F8:.*]] = func.call @mlirstack_f32_to_f8E5M2(%[[F32]])
// CHECK: call @mlirstack_f8E4M3FN_to_f16(

// CHECK-LABEL: gpu.func @warp(
// CHECK: call @mlirstack_shuffle_xor_f64(
// CHECK: call @mlirstack_subgroup_maximumf_bf16_32_1(
// CHECK: %[[WIDE:.*]] = arith.extf {{.*}} : bf16 to f32
// CHECK: gpu.all_reduce add %[[WIDE]] uniform
// CHECK-NEXT: (f32) -> f32

// What torch computes without pow: its square root of minus infinity is NaN.
// CHECK-LABEL: gpu.func @powers(
// CHECK: math.sqrt %{{.*}} : f32
// CHECK: arith.mulf
// CHECK: arith.divf
// CHECK: math.powf

// CHECK-LABEL: gpu.func @memory(
// CHECK: memref.generic_atomic_rmw
// CHECK: arith.mulf
gpu.module @kernels {
  gpu.func @integers(%x: i32, %v: vector<4xi32>, %out: memref<4xi32>) kernel {
    %c0 = arith.constant 0 : index
    %0 = math.ipowi %x, %x : i32
    memref.store %0, %out[%c0] : memref<4xi32>
    %1 = math.ipowi %v, %v : vector<4xi32>
    vector.store %1, %out[%c0] : memref<4xi32>, vector<4xi32>
    gpu.return
  }
  gpu.func @floats(%x: f64, %y: f8E4M3FN, %bytes: memref<4xf8E5M2>, %halves: memref<4xf16>, %flags: memref<4xi1>) kernel {
    %c0 = arith.constant 0 : index
    %0 = arith.truncf %x : f64 to f32
    %1 = math.isnormal %0 : f32
    memref.store %1, %flags[%c0] : memref<4xi1>
    %2 = arith.truncf %0 : f32 to f8E5M2
    memref.store %2, %bytes[%c0] : memref<4xf8E5M2>
    %3 = arith.extf %y : f8E4M3FN to f16
    memref.store %3, %halves[%c0] : memref<4xf16>
    gpu.return
  }
  gpu.func @warp(%x: f64, %y: bf16, %doubles: memref<4xf64>, %narrow: memref<4xbf16>) kernel {
    %c0 = arith.constant 0 : index
    %one = arith.constant 1 : i32
    %width = arith.constant 32 : i32
    %0, %valid = gpu.shuffle xor %x, %one, %width : f64
    memref.store %0, %doubles[%c0] : memref<4xf64>
    %1 = gpu.subgroup_reduce maximumf %y uniform : (bf16) -> bf16
    memref.store %1, %narrow[%c0] : memref<4xbf16>
    %2 = gpu.all_reduce add %y uniform {} : (bf16) -> bf16
    memref.store %2, %narrow[%c0] : memref<4xbf16>
    gpu.return
  }
  gpu.func @powers(%x: f32, %out: memref<4xf32>) kernel {
    %c0 = arith.constant 0 : index
    %half = arith.constant 0.5 : f32
    %minus_two = arith.constant -2.0 : f32
    %other = arith.constant 1.5 : f32
    %0 = math.powf %x, %half : f32
    memref.store %0, %out[%c0] : memref<4xf32>
    %1 = math.powf %x, %minus_two : f32
    memref.store %1, %out[%c0] : memref<4xf32>
    %2 = math.powf %x, %other : f32
    memref.store %2, %out[%c0] : memref<4xf32>
    gpu.return
  }
  gpu.func @memory(%x: f32, %out: memref<4xf32>) kernel {
    %c0 = arith.constant 0 : index
    %0 = memref.atomic_rmw mulf %x, %out[%c0] : (f32, memref<4xf32>) -> f32
    gpu.return
  }
}
