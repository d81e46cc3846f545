"""Searches for faster kernels, stores the measurements, and validates its choices.

`job/` is called by the command line and other jobs; its parts share one `TuningRun`.
"""
