"""A session rendered for people and machines, by `core` and `analysis`: without TVM or torch.

Commands, stages and lessons call it; it never compiles.
"""
