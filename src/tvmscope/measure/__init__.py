"""Times functions that are named by references, each in a separate process.

Every layer above uses its workers; it knows no backend and no model.
"""
