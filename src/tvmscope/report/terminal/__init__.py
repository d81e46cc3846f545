"""Tables for the terminal, each of which belongs to one command."""
