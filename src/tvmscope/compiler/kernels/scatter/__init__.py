"""Scatters inverted to gathers: each element of the result looks up its update.

Only rewrites call it.
"""
