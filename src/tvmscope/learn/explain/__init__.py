"""Explains a built step: its loops, its machine code, and why it is faster or slower than another.

Runs, sweeps, the bench and the pages call it; it reads the facts of steps and measures nothing.
"""
