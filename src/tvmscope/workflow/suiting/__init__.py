"""Many problems in one go: each isolated, its row kept at once, the whole resumable.

`run.py` has the loop; the command line calls it, and it calls what `analyze` is made of.
"""
