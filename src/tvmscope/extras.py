"""The parts of an installation: which extra provides which library, and the message without it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tvmscope.errors import BackendUnavailable
from tvmscope.messages import Message, Text, msg

BASE = (
    "numpy",
    "psutil",
    "typer",
    "rich",
    "jinja2",
    "plotly",
    "matplotlib",
    "pillow",
    "platformdirs",
    "jsonschema",
    *(() if sys.platform == "linux" else ("py-cpuinfo",)),
)
"""Distributions that every installation has: they show, compare and store measurements."""

EXTRAS: Mapping[str, Mapping[str, str]] = {
    "tvm": {
        "apache-tvm": "tvm",
        "apache-tvm-ffi": "tvm_ffi",
        "onnx": "onnx",
        "onnxscript": "onnxscript",
        "onnxslim": "onnxslim",
        "onnxruntime": "onnxruntime",
        "xgboost-cpu": "xgboost",
        "cloudpickle": "cloudpickle",
        "tornado": "tornado",
    },
    "torch": {
        "torch": "torch",
        "torchvision": "torchvision",
        "transformers": "transformers",
    },
    "openvino": {"openvino": "openvino"},
    "play": {"textual": "textual"},
    "cuda": {"triton": "triton"},
    "cluster": {"distributed": "distributed"},
}
"""By extra: its distributions, each with the module that it provides."""

_EXTRA_OF = {module: extra for extra, found in EXTRAS.items() for module in found.values()}


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'tvmscope[{extra}]'"


def missing(module: str) -> Message | None:
    """Return one line with the command that installs `module`; None if it is installed."""
    if importlib.util.find_spec(module) is not None:
        return None
    return msg(
        "{name} is not installed: {install}", name=module, install=install(_EXTRA_OF[module])
    )


def require(*modules: str, why: Text) -> None:
    """Raise `BackendUnavailable` if one of `modules` is missing; `why` names the feature.

    Nothing is imported, so that a process that only checks stays light.
    """
    for name in modules:
        if missing(name) is not None:
            more = msg(" (tvmscope[all] adds PyTorch and OpenVINO)") if name == "tvm" else ""
            raise BackendUnavailable(
                msg(
                    "{why} needs {name}, which is not installed: {install}{more}",
                    why=why,
                    name=name,
                    install=install(_EXTRA_OF[name]),
                    more=more,
                )
            )


@contextmanager
def hidden(module: str) -> Iterator[None]:
    """Make `import module` fail inside the block, unless it is already imported.

    Some libraries import another one only because it is installed.
    """
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]  # this is how Python spells it
    try:
        yield
    finally:
        del sys.modules[module]


def explain(error: BaseException) -> BackendUnavailable | None:
    """Say what to install if an import failed because an extra is missing; None otherwise."""
    if not isinstance(error, ModuleNotFoundError) or error.name not in _EXTRA_OF:
        return None
    return BackendUnavailable(
        msg(
            "{name} is not installed: {install}",
            name=error.name,
            install=install(_EXTRA_OF[error.name]),
        )
    )
