"""The search: which task gets the next trial, and which candidate is tried.

The tuning job drives it; it builds and times nothing itself, trials do.
"""
