"""Units that NVIDIA's libraries compute: which call does it, and how the call is made.

`call` says what a call is, without any library. `cublaslt` makes it: it stands alone, and artifacts
that need it carry a copy.
"""
