"""One file per lesson, each with a `LESSON`; TVM is imported only inside functions.

Only `learn.catalog` finds them.
"""
