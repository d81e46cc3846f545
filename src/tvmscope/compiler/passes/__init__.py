"""One file per pass; `pipeline.py` has them in order."""
