"""Units of a CUDA program: the operators of one generated kernel, found and placed in a graph.

A unit is an operator with its bias, residual and activation; `tvmscope.cuda` computes it.
"""
