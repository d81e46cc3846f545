"""What computes: convolutions, Winograd, scatters, selection, attention and row operators.

Tensor expressions and hand-written loops. Passes put them into a graph, schedule rules make them
fast.
"""
