"""Loads a module or a graph from each kind of source: hubs, Python files, ONNX files.

`models.prepare` calls it, in a worker: what it loads may be code of the user's.
"""
