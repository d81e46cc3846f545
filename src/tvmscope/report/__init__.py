"""A session rendered for people and machines, by `core` and `analysis`: without TVM or torch."""
