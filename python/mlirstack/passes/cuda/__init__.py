"""Passes of target ``cuda``: kernels out of a graph, launches, and the way from LLVM dialect to PTX, cubin and SASS."""
