"""Darknet networks: the .cfg text, the layers as torch modules, the weights file."""
