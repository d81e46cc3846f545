"""Images in, labels or boxes out: everything around a compiled vision model."""
