"""The search: which task gets the next trial, and which candidate is tried."""
