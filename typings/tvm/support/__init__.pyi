from tvm.support import nvcc as nvcc
