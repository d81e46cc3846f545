"""Frozen values that every layer shares.

Every layer may import it; it imports `storage` and the layers below, and no third-party library but
numpy.
"""
