"""Imports ONNX: TVM's importer node by node, and converters of our own.

Only `import_model` of the room above, the bisection and ONNX's backend interface call it.
"""
