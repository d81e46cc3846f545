"""Converters of our own for PyTorch operators that TVM's importer lacks: one file per family.

Only `walk`, beside this room, calls them: with its builder and the operator's arguments.
"""
