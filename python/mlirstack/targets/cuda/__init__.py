"""Target ``cuda``: cubins loaded through the CUDA driver, run on torch's current device and stream."""
