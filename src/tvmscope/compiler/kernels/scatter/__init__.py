"""Scatters inverted to gathers: each element of the result looks up what is written to it."""
