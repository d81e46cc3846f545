"""Explicit models of a machine, by which schedules choose."""
