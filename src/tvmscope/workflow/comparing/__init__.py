"""Compares two saved sessions, or two artifacts by measuring both again.

Only the command `compare` calls it.
"""
