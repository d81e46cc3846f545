"""Finds plug-in files: every module of a package that carries a manifest under an agreed name."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from typing import Any

from tvmscope.errors import one_line


@dataclass(frozen=True)
class PluginFailure:
    """A plug-in file that did not load; `doctor` shows it."""

    module: str
    reason: str


def discover(package: str, attribute: str) -> tuple[dict[str, Any], list[PluginFailure]]:
    """Map module name -> its `attribute`, for each module of `package` that has one."""
    root = importlib.import_module(package)
    found: dict[str, Any] = {}
    failures: list[PluginFailure] = []
    for info in sorted(pkgutil.iter_modules(root.__path__), key=lambda i: i.name):
        if info.name.startswith("_"):
            continue
        name = f"{package}.{info.name}"
        try:
            module = importlib.import_module(name)
        except Exception as e:  # a broken plug-in must not take the program down
            failures.append(PluginFailure(name, f"{type(e).__name__}: {one_line(e)}"))
            continue
        manifest = getattr(module, attribute, None)
        if manifest is not None:
            found[info.name] = manifest
    return found, failures
