"""Lessons about schedules that run on the reader's machine, and a bench for the reader's own.

A lesson is one manifest in `lessons/`; the command line calls `run`, `sweep` and `lab` and shows
their results. TVM runs only in worker processes.
"""
