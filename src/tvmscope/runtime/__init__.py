"""Runs what was compiled: the artifact's format, its weights and the loaded model.

Importable with TVM alone. The compiler writes artifacts through it, backends and tasks load them.
"""
