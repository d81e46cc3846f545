"""The names in a file that says how sensitive a model is to rounding (`sensitivity.npz`)."""

from __future__ import annotations

MAX, RMS = "max/", "rms/"
"""Before a floating-point output's name: how far the framework's own results deviate, at the most
and on average."""
TRUTH = "truth/"
"""Before its name: the output in float64, where the model could be run in it."""
MASK = "mask/"
"""Before an integer output's name: the elements that rounding alone changes, such as the index of
the larger of two values that are all but equal."""
UNIT = 2.0**-24
"""The rounding error of one float32 operation, which amplification counts from."""
