"""Tables for the terminal, each of which belongs to one command.

Commands call it with values; nothing here prints by itself.
"""
