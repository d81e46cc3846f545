"""Kernel times by each backend's own instrument; they run in the backend's worker.

Only the backends beside this room call them.
"""
