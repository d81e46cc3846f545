"""Tries the fixes of findings: predicted, built, verified, measured, then kept or undone.

`analyze` calls it with a diagnosed session; the accuracy of predictions is stored for later ones.
"""
