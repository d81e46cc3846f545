"""Turns scheduled kernels into machine code: compilers and linkers of each target."""
