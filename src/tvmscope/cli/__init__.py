"""The command line: parse, call a workflow, render; the only place that prints or exits."""
