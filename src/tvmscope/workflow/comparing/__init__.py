"""Compares two of a kind: sessions as they were saved, artifacts by measuring both anew."""
