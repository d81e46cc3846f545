"""Assignments to masks of both formats, from sizes known at run time only to fixed ones.

The importers of `onnx/` and `torch/` call it; it knows nothing of them.
"""
