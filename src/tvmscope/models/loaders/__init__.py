"""Loads a module or a graph from each kind of source: hubs, Python files, ONNX files."""
