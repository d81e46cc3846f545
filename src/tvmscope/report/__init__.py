"""Renders a session for people and machines; imports only core/, so needs no TVM and no torch."""
