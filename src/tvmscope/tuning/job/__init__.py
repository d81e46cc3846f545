"""The job that tunes: plan, search, validate, prove. The command line and `analyze --tune` call it.

It consists of the stages, of tuning's own search and proof, and of one `TuningRun` that they share.
"""
