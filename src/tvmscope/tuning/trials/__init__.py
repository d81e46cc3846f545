"""One trial: build a candidate, check what it computes, time it."""
