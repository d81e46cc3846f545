"""Stores values on disk: dataclasses as JSON, files written atomically.

Every layer that keeps files calls it; it imports no layer above.
"""
