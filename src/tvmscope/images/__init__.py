"""Code around a compiled vision model: from images to labels or boxes."""
