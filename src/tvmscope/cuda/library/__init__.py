"""Units that NVIDIA's libraries compute: the descriptions of calls, and the calls.

`call` says which library computes a unit; `product` and `convolution` describe the calls of
cuBLASLt and cuDNN, without any library. `cublaslt` and `cudnn` make them: they have no other
imports, and artifacts that need them contain a copy. `symbols` reads what a profile shows of them.
"""
