"""Times whatever a reference to a function names, each in a process of its own."""
