"""Schedules of target ``cpu``: which loops, which vectors, in which order.

The order in the stage table is pack, hoist, outline, tile, vectorize:

1. ``mlirstack-cpu-pack`` runs on ``@main`` after fusion.  A contraction ``C[m, n] += A[m, k] * B[k, n]`` becomes one generic
   op ``C[mo, mi, no, ni] += A[mo, mi, k] * B[no, k, ni]`` over register tiles.  A and C are only reshaped, B is copied into
   panels by an elementwise generic op (with the transpose, cast and padding that it needs), and elementwise ops after the
   contraction are rewritten to the shape of C's tiles, so that they can join its kernel.
2. ``mlirstack-hoist-parameters`` runs again: the copy of a weight depends on parameters alone and moves into ``@prepare``.
   A B that comes with the call, or is computed in it, is packed in the call where there are enough rows to pay for it,
   its transpose included; else it is read where it lies (``direct``).
3. ``mlirstack-outline-kernels``: the packed contraction with what follows it is one kernel, the copy another.
4. ``mlirstack-cpu-tile``, ``mlirstack-cpu-vectorize``: per kernel, by class.
5. After bufferization ``mlirstack-vector-math``, then ``mlirstack-cpu-lower-vectors``.
"""
