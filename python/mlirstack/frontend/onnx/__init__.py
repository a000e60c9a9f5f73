"""ONNX files as models: reading, import by torch-mlir, and what stands for a Torch program."""
