"""Programs that run an artifact by the loader it carries, where only TVM can be imported."""

from __future__ import annotations

RUN = """
import sys
for name in ("torch", "tvmscope", "triton"):
    sys.modules[name] = None
{before}
sys.path.insert(0, sys.argv[1])
import numpy as np
from load_model import LoadError, Model
try:
    model = Model(sys.argv[1])
    with np.load("inputs.npz") as data:
        for _ in range(4):  # the first runs record the CUDA graph
            outputs = model(**data)
except LoadError as e:
    print(e)
    sys.exit(7)
np.savez("out.npz", **outputs)
"""
"""Runs the first argument on `inputs.npz` and saves `out.npz`; 7 is a `LoadError`."""
ASK = """
import json
import tvm_ffi
register = tvm_ffi.register_global_func
kernels = {{entry["name"] for entry in json.load(open(sys.argv[1] + "/cubins.json"))}}
def asking(name, function=None, override=False):
    def launch(*args):
        args = list(args)
        args[{index}] = {value}
        return function(*args)
    return register(name, launch if name in kernels else function, override)
tvm_ffi.register_global_func = asking
"""
"""Launches with another number than the program gives: of threads, or of bytes of shared memory."""
