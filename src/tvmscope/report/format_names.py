"""The names of the formats, for help texts; no format is imported."""

from __future__ import annotations

import importlib
import pkgutil

from tvmscope.plugins import names

FORMATS = "tvmscope.report.formats"


def format_names() -> list[str]:
    """Return the built-in formats, which are named after their files, and other packages'."""
    files = pkgutil.iter_modules(importlib.import_module(FORMATS).__path__)
    built_in = [file.name.strip("_").replace("_", "-") for file in files]
    return [*sorted(built_in), *names("format")]
