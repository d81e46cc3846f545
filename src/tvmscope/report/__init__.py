"""A session rendered for people and machines; sees only core/, so needs no TVM and no torch."""
