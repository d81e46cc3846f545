"""Measures the worth of each optimisation, by disabling it and by running it alone.

Only the command `ablate` calls it.
"""
