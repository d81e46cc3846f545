"""Imports the libraries of a fork server: PyTorch, TVM and the code that uses them.

Nothing here may start a thread: the server then refuses to fork.
"""

from __future__ import annotations

import contextlib
import importlib
import warnings

from tvmscope import extras
from tvmscope.backends.torch_module import env
from tvmscope.measure.fork_server import ForkServer
from tvmscope.measure.remote import here

_MODULES = (
    "tvmscope.compiler.build", "tvmscope.compiler.frontends.torch", "tvmscope.models.prepare",
    "tvmscope.models.loaders.load", "tvmscope.backends.tvm", "tvmscope.backends.torch_eager",
    "tvmscope.runtime.loaded_artifact", "tvm.relax.frontend.torch",
)  # fmt: skip


def preload() -> None:
    """Import all modules of a worker; export a tiny module, which imports the rest."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if extras.missing("torch") is None:
            _preload_torch()
        for name in _MODULES:
            with contextlib.suppress(ImportError):  # an extra that is not installed
                importlib.import_module(name)


def _preload_torch() -> None:
    import torch

    from tvmscope.runtime.torchvision_operators import make_importable

    torch.set_num_threads(1)
    make_importable()
    torch.export.export(torch.nn.ReLU(), (torch.zeros(2),), strict=False)


def fork_server(threads: int) -> ForkServer:
    """Return a server for workers on the CPU that run on this many threads."""
    # numpy's OpenBLAS starts its threads on import; no timed code uses it
    return ForkServer(here(preload), {**env(threads), "OPENBLAS_NUM_THREADS": "1"})
