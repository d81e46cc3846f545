"""Measures kernel times, and the machine's limits.

The stage that profiles, the lessons and `doctor` call it.
"""
