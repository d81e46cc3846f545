"""Arithmetic on measured values: roofline, waterfall, alignment, changes, ablation.

Pure functions of core's types, which reports, diagnosis and jobs share."""
