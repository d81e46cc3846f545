"""Rewrites for CPUs: channel blocks, column panels, row kernels, batches in parts.

Passes call them.
"""
