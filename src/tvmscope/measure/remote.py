"""References to functions that run in a worker process: typed here, imported only there.

    if TYPE_CHECKING:
        import tvmscope.compiler.build

    BUILD = remote(lambda: tvmscope.compiler.build.build)
    artifact = worker.call(BUILD, prepared, output, target, host, options)

A type checker reads the lambda and so knows the arguments and the result; import-linter reads the
import. This process reads only the path that the lambda spells, and never imports the module.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True)
class Remote(Generic[P, R_co]):
    """A function of a module, by name; these two strings cross the process boundary."""

    module: str
    name: str

    def resolve(self) -> Callable[P, R_co]:
        """Import the function, in the process that runs it."""
        found: Callable[P, R_co] = getattr(importlib.import_module(self.module), self.name)
        return found

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


def remote(spelled: Callable[[], Callable[P, R_co]]) -> Remote[P, R_co]:
    """Make a reference to the function whose full path a lambda contains; nothing is imported."""
    assert isinstance(spelled, FunctionType)
    root = spelled.__code__.co_names[0]
    path = FunctionType(spelled.__code__, {root: _Path(root)})()
    module, _, name = str(path).rpartition(".")
    if not module:
        raise TypeError(f"{path} names no module: spell the whole path, package.module.function")
    return Remote(module, name)


def here(function: Callable[P, R_co]) -> Remote[P, R_co]:
    """Make a reference to an imported function, for modules that are light enough to import."""
    if not isinstance(function, FunctionType) or "." in function.__qualname__:
        raise TypeError(f"{function!r} is no function of a module: a worker could not find it")
    return Remote(_importable(function.__module__), function.__name__)


def _importable(module: str) -> str:
    """Return a module's name; for a script, which is `__main__`, that of its file."""
    if module != "__main__":
        return module
    main = sys.modules[module]
    return main.__spec__.name if main.__spec__ else Path(str(main.__file__)).stem


class _Path:
    """Represents a package while a lambda is read; it records the requested attributes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __getattr__(self, name: str) -> Any:
        return _Path(f"{self._text}.{name}")

    def __str__(self) -> str:
        return self._text
