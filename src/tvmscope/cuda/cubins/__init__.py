"""Compiles a unit and a configuration to machine code, stores it in a file and reads it back."""
