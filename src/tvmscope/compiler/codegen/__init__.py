"""Turns scheduled kernels into machine code: compilers and linkers of each target.

The build, the tuning tasks and the roofs' kernels use it.
"""
