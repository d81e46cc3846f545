"""Darknet networks: the .cfg text, the layers as torch modules, the weights file.

The loaders and the built-in YOLO models call it.
"""
