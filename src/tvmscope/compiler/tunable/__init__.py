"""What can be tuned in a model: parameters of kernels, traces, and the tasks of a search."""
