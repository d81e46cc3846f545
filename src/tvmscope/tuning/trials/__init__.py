"""One trial: build a candidate, check its results, time it."""
