"""Finds the tunable parts of a model: parameters of kernels, traces, and the tasks of a search.

Schedules and kernels read the parameters, `tuning` the tasks; nothing here searches.
"""
