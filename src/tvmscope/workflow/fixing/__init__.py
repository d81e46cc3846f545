"""Tries the fixes of findings: predicted, built, verified, measured, then kept or undone.

`analyze` calls it with a diagnosed session; how good predictions were is kept for the next ones.
"""
