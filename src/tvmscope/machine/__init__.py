"""Describes this machine: CPU features, the GPU, the load. Asks the system, never TVM."""
