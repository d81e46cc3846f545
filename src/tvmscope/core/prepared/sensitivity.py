"""The names in a file that says how sensitive a model is to rounding (`sensitivity.npz`)."""

from __future__ import annotations

MAX, RMS = "max/", "rms/"
"""Prefixes of a floating-point output's name: the deviation of the framework's own results, at most
and on average."""
TRUTH = "truth/"
"""Prefix of its name: the output in float64, if the model could run in it."""
MASK = "mask/"
"""Prefix of an integer output's name: the elements that rounding alone changes, such as the index
of the larger of two nearly equal values."""
UNIT = 2.0**-24
"""The rounding error of one float32 operation; amplification is relative to it."""
