"""The content of a report, as plain values: every format draws the same ones."""
