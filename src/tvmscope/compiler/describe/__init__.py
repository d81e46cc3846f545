"""Describes compiled kernels for people and rules: loops, work, and where they come from.

The build writes what it finds into the artifact; profilers and `explain` read it.
"""
