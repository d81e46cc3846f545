"""Compiles a unit and a configuration to machine code, stores it in a file and reads it back.

The compiler and the trials call it; only `kernel_compiler` needs Triton.
"""
