"""Marks in the IR: a function attribute that holds the class of an outlined kernel, a permission on multiplications."""

from __future__ import annotations

KERNEL_ATTRIBUTE = "mlirstack.kernel"
TF32_ATTRIBUTE = "mlirstack.tf32"  # on arith.mulf of two f32: the factors may be rounded to TF32

CONTRACTION = "contraction"  # matmul in all its forms: two inputs, multiply and add, plain loop indices
CONVOLUTION = "convolution"  # the same, one input through a sliding window
POOLING = "pooling"  # a window, reduced by maximum, sum, …
ATTENTION = "attention"  # softmax(mask(Q Kᵀ)) V as a whole
REDUCTION = "reduction"  # rows reduced, with the elementwise ops around them over the same rows
ELEMENTWISE = "elementwise"
OTHER = "other"  # dynamic shapes, gathers, complex numbers: plain loops
