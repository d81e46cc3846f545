"""From a unit and a configuration to machine code: compiled, kept in a file, read back."""
