"""Measures where time goes, and what the machine can do at best."""
