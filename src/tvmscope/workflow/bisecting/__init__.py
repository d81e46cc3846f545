"""Finds where a result goes wrong: the first pass, the first operator, and a script that shows it.

`bisect` is the job; the compiler's part runs in a worker process.
"""
