"""One file per format, each with `RENDERER = Renderer(...)`; the renderers are found by file.

Only `report.renderers` finds them.
"""
