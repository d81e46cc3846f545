"""Proves tuned kernels: each is measured again in turns with the untuned one, part by part."""
