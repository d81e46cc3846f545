"""One file per rule, each with `RULE = Rule(...)`; the engine finds them.

A rule reads the session that it is given, and nothing else.
"""
