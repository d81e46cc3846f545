"""Triton kernels with every shape as a constant, one idea per file.

Only `cuda.kernel_compiler` and the tests import these modules: they need Triton. `cuda.binding`
defines the constants and arguments of a kernel.
"""
