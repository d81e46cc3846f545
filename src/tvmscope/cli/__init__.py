"""The command line: parse, call a workflow, render; the only layer that prints or exits."""
