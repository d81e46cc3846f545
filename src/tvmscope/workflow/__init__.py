"""The product's jobs: each file reads as the list of stages it runs; `analyze` first.

The command line and the Python API call them; they call tuning and the stages.
"""
