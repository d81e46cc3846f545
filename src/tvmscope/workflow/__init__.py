"""The product's jobs: each file is the list of stages that it runs; start with `analyze`.

The command line and the Python API call them; they call tuning and the stages.
"""
