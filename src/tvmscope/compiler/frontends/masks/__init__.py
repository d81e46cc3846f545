"""Assignments to masks, from sizes that are known at run time only to fixed ones."""
