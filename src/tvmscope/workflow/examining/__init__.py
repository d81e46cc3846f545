"""What is looked at before anything is measured: the installation, the machine, a command's plan.

The command line shows what these return; nothing here writes a session.
"""
