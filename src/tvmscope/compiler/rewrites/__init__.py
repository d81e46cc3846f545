"""The code of our passes: each module rewrites a graph, and its manifest in `passes/` says when."""
