"""What torch.compile did to a model: graphs, breaks, recompilations, kernels, and what to do about each."""
