"""Kernels that memory bounds: elementwise, transposes, reductions with what stands around them."""
