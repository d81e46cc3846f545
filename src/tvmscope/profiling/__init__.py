"""Measures kernel times, and the machine's limits."""
