"""Tables for the terminal that belong to one command each."""
