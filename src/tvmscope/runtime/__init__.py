"""Runs compiled models: the artifact's format, its weights and the loaded model.

It needs only TVM. The compiler writes artifacts through it, backends and tasks load them.
"""
