"""Plans a comparison of backends, runs it and checks what they computed.

The stages call it; it knows no compiler and no model, only entries that a worker loads.
"""
