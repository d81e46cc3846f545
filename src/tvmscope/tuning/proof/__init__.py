"""Proves tuned kernels: measures each again in turns with the untuned one, part by part."""
