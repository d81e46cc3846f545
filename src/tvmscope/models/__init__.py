"""Turns what a user names (a built-in, a file, a hub's model, a module) into a prepared folder.

`resolve` says what was named, `prepare` writes the folder, `torch_module` loads the original
module from it. Files without a leading underscore import no heavy library until they are called.
"""
