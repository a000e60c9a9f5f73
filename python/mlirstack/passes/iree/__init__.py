"""Passes for IREE: what its modules are made of, our kernels inside them, and checks of what was built."""
