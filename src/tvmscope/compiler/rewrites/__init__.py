"""The code of our passes: each module rewrites a graph, and its manifest in `passes/` says when.

Passes call them; they import no schedule and no frontend.
"""
