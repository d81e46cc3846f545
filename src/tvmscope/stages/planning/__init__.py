"""Plans the rows of a job: which backends, targets, precisions and tuning records make one."""
