"""Code around a compiled vision model: from images to labels or boxes.

`workflow` calls it, in a worker that loads the artifact; it compiles nothing.
"""
