"""Explains why a model is slow: rules over a session, each with evidence, estimated saving and
advice."""
