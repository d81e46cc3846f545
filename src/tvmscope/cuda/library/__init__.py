"""Units that NVIDIA's libraries compute: the descriptions of calls, and the calls.

`call` describes a call, without any library. `cublaslt` makes it: it has no other imports, and
artifacts that need it contain a copy.
"""
