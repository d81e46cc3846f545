"""Triton kernels with every shape as a constant, one idea per file.

Only `cuda.cubins.kernel_compiler` and the tests import these modules: they need Triton.
`cuda.binding` says with which constants and arguments a kernel is made.
"""
