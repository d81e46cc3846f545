"""What passes share: a mutator by operator, values known at compile time, images of a batch.

Passes and frontends call it; it imports neither passes nor schedules.
"""
