"""Times functions that are named by references, each in a separate process."""
