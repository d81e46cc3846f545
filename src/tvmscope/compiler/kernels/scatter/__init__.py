"""Scatters turned round: each element of the result looks up what is written to it."""
