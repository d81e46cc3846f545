"""The interactive page: the reader picks primitives, sees the loops change and the time measured.

`game` contains the rules without a terminal; `app` is its page, drawn by textual.
"""
