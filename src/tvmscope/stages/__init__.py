"""The stages that jobs are made of: load, resolve targets, plan, build, measure, profile, diagnose.

Jobs in tuning/ and workflow/ call them in order; a stage knows no job and no tuning record.
"""
