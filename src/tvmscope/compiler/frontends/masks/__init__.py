"""Rewrites assignments to masks, whose sizes are known only at run time, to fixed sizes.

The importers of `onnx/` and `torch/` call it; it imports neither.
"""
