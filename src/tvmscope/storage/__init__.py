"""Stores values on disk: dataclasses as JSON, files written atomically."""
