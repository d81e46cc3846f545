"""Prepares a folder from what a user names: a built-in, a file, a hub's model, a module.

`resolve` finds what was named, `prepare` writes the folder, `torch_module` loads the original
module from it. Files without a leading underscore import no heavy library until they are called.
"""
