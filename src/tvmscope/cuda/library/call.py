"""A unit as one call of one of NVIDIA's libraries: which library, which units, which call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from tvmscope.cuda.config import LIBRARIES, Config
from tvmscope.cuda.library import convolution, cublaslt, cudnn, product
from tvmscope.cuda.library.convolution import ConvolutionCall
from tvmscope.cuda.library.operands import TRIED
from tvmscope.cuda.library.product import ProductCall
from tvmscope.cuda.units import Unit
from tvmscope.errors import UsageError
from tvmscope.messages import Text, msg
from tvmscope.storage.codec import decode

LibraryCall = ProductCall | ConvolutionCall


class _Calls(Protocol):
    """What a module that describes a library's calls has."""

    NEEDS: dict[str, str]

    def why_not(self, unit: Unit) -> Text | None: ...

    def configs(self, unit: Unit, count: int = ...) -> Iterator[Config]: ...

    def call_of(self, unit: Unit, config: Config) -> LibraryCall: ...


_CALLS: dict[str, _Calls] = {"cublaslt": product, "cudnn": convolution}
_FORMS: dict[str, type[LibraryCall]] = {"cublaslt": ProductCall, "cudnn": ConvolutionCall}
FILES = {"cublaslt": Path(cublaslt.__file__), "cudnn": Path(cudnn.__file__)}
"""The file that makes a library's calls; an artifact that needs it has a copy."""


def here() -> tuple[str, ...]:
    """Return the libraries that this machine has."""
    found = {"cublaslt": cublaslt.find(), "cudnn": cudnn.find()}
    return tuple(name for name in LIBRARIES if found[name] is not None)


def from_json(data: dict[str, Any]) -> LibraryCall:
    """Read a call from a JSON object."""
    return decode(_FORMS[data["library"]], data)


def configs(unit: Unit, count: int = TRIED) -> Iterator[Config]:
    """Yield the calls to try: the first `count` of each library that computes the unit."""
    for calls in _CALLS.values():
        yield from calls.configs(unit, count)


def why_not(unit: Unit, library: str | None = None) -> Text | None:
    """Why a library (None: each) cannot compute a unit in one call; None where it can."""
    whys = [_CALLS[name].why_not(unit) for name in ([library] if library else LIBRARIES)]
    return None if None in whys else whys[0]


def call_of(unit: Unit, config: Config) -> LibraryCall:
    """Return the call that computes a unit; refused where there is none."""
    if config.template not in _CALLS:
        why = msg("{template} is no library", template=config.template)
        raise UsageError(msg("{unit}: {why}", unit=unit.label, why=why))
    return _CALLS[config.template].call_of(unit, config)


def needs(calls: Iterable[LibraryCall]) -> dict[str, str]:
    """Return what loading a model with these calls needs: libraries, and their oldest versions."""
    names = {call.library for call in calls}
    return {k: v for name in LIBRARIES if name in names for k, v in _CALLS[name].NEEDS.items()}
