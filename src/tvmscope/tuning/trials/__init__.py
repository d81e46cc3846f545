"""One trial: build a candidate, check its results, time it.

The search, the proof and the farm call it; compiled candidates run in workers.
"""
