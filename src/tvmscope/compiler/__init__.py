"""Compiles a prepared model to an artifact; all code that knows TVM's IR is here.

What compiles runs in workers, by reference; `stages`, `workflow`, `tuning` and `learn` call it. It
imports neither `models` nor a layer above.
"""
