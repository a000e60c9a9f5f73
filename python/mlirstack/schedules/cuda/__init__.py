"""Kernel emitters for NVIDIA GPUs: what a thread block computes, written with op builders."""
