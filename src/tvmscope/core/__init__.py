"""Frozen values that every layer shares: standard library and numpy only."""
