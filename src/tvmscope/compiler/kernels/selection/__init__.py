"""Sorting, TopK and non-maximum suppression in parallel loops.

Only rewrites call it.
"""
