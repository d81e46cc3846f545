"""The models that need no file; each has its manifest in `MODEL`.

Only `models.catalog` finds them.
"""
