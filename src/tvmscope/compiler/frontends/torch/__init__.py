"""Imports PyTorch: the exported program through TVM's importer, and converters of our own.

Only `import_model` of the room above and the bisection call it.
"""
