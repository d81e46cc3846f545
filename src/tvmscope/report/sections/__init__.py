"""The content of a report, as plain values: every format draws the same ones.

Formats, the terminal and the lessons' pages call it; nothing here prints.
"""
