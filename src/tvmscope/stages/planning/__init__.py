"""Plans the rows of a job, from backends, targets, precisions and tuning records.

Jobs call it; nothing here compiles or measures.
"""
