"""Explicit models of a machine, which schedules use to choose."""
