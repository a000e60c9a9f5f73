"""What GPUs have beyond scalar arithmetic: vector accesses, shuffles, tensor cores, the copy engine."""
