"""The part of `compile` for dimensions that vary: compiles several sizes, checks and times each.

`compile` calls it with the sizes of `--dynamic`; it calls the stages, and knows no other job.
"""
