"""Describes compiled kernels for people and rules: loops, work, and where they come from."""
