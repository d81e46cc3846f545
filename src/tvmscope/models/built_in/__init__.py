"""The models that need no file; each carries its manifest in `MODEL`."""
