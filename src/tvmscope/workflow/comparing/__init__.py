"""Compares two sessions as they were saved, or two artifacts by measuring both again."""
