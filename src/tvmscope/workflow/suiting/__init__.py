"""Measures many problems: each isolated, its row saved at once, the whole resumable.

`run.py` has the loop; the command line calls it, and it calls the stages of `analyze`.
"""
