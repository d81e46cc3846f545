"""Rewrites for NVIDIA GPUs: NHWC, narrow values, views, and units as generated kernels.

Passes call them.
"""
