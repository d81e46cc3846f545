"""One file per command, each with its `COMMAND`: parse, call a workflow, show."""
