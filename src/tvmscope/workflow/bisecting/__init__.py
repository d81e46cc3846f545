"""Finds where a result goes wrong: the first pass, the first operator, and a script that shows it.

`bisect` is the job; what it asks of the compiler runs in a worker process.
"""
