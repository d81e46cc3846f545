"""Explains why a model is slow: rules over a session, each with evidence, estimated saving and
advice.

The stage of that name calls the engine. It reads a session alone, without TVM or torch.
"""
