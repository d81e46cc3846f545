"""The interactive page: the reader picks primitives, sees the loops change and the time measured.

`game` knows the rules and no terminal; `app` is its page, drawn by textual.
"""
