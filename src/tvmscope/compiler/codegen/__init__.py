"""From scheduled kernels to machine code: compilers and linkers of each target."""
