"""Reads a Python script that uses TVM, old or new, and says what costs it speed or is gone.

The script is parsed and never run; nothing here imports TVM. The command line shows the faults.
"""
