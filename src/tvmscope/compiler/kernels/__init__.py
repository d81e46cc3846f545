"""The computations: convolutions, Winograd, scatters, selection, attention and row operators.

They are tensor expressions and hand-written loops. Passes put them into a graph; schedule rules
make them fast.
"""
