"""Explicit models of a machine, which schedules use to choose.

Kernels, rewrites and schedules ask them; they import no TVM and measure nothing.
"""
