"""Reads a Python script that uses TVM, old or new, and reports what is slow or removed.

The script is parsed and never run; nothing here imports TVM. The command line shows the faults.
"""
