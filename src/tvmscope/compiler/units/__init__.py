"""Units of a CUDA program: what one generated kernel computes, found in a graph and placed there.

A unit is an operator with its bias, residual and activation; `tvmscope.cuda` computes it.
"""
