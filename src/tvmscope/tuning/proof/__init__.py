"""Proves tuned kernels: measures each again in turns with the untuned one, part by part.

Only the tuning job calls it, after the search.
"""
