"""Examines a model pass by pass, for a bisection, and writes its reproducers.

Only `workflow.bisecting` calls it, in a worker.
"""
