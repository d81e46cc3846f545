"""Imports ONNX: TVM's importer node by node, and converters of our own."""
