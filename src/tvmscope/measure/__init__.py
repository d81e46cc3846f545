"""Times anything named by a dotted path, each in a process of its own."""
