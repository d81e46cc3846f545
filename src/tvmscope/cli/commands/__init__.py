"""One file per command, each with its `COMMAND`: parse, call a workflow, show.

Only `cli` finds them; what a command needs is imported inside its function, so that help stays
quick.
"""
