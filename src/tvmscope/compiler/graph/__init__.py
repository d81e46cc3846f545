"""Code that passes share: a mutator by operator, compile-time values, images of a batch.

Passes and frontends call it; it imports neither passes nor schedules.
"""
