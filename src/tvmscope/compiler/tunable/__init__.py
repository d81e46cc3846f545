"""Finds the tunable parts of a model: parameters of kernels, traces, and the tasks of a search."""
