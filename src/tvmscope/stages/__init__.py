"""The stages that jobs are made of: load, resolve targets, plan rows, build, race, profile, save.

Jobs in tuning/ and workflow/ call them in order; a stage knows no job and no tuning record.
"""
