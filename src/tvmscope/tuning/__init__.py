"""Searches for faster kernels, keeps what was measured, and proves what it uses.

`job/` is what the command line and other jobs call; `run` is what its parts share.
"""
