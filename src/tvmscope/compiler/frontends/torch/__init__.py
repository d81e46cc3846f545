"""Imports PyTorch: the exported program through TVM's importer, and converters of our own."""
