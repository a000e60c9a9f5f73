"""From a Torch model, a .pt2, .mlir or model reference to a :class:`mlirstack.frontend.program.Program`."""
