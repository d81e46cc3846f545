"""Examines things before a measurement: the installation, the machine, a command's plan.

The command line shows the results; nothing here writes a session.
"""
