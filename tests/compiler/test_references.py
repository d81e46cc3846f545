"""Every reference to a function of a worker process that the package declares can be resolved."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator
from typing import Any

import tvmscope
from support import fakes
from tvmscope.measure.remote import Remote, here
from tvmscope.measure.worker import Worker

LIBRARIES = ("tvm", "torch", "torchvision", "onnx", "onnxruntime", "openvino", "triton")


def declared() -> set[Remote[..., Any]]:
    """Every reference in a module of the package: by itself, or in a manifest."""
    found: set[Remote[..., Any]] = set()
    for info in pkgutil.walk_packages(tvmscope.__path__, f"{tvmscope.__name__}."):
        if ".reproducers." in info.name:  # scripts that are copied, not imported
            continue
        try:
            module = importlib.import_module(info.name)
        except ModuleNotFoundError as e:
            if (e.name or "").split(".")[0] not in LIBRARIES:
                raise
            continue
        for value in vars(module).values():
            found.update(_references(value))
    return found


def _references(value: Any) -> Iterator[Remote[..., Any]]:
    if isinstance(value, Remote):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _references(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _references(getattr(value, field.name))


def unresolved() -> list[str]:
    """Called in a child: what cannot be found, though the library it needs is there."""
    found = declared()
    assert len(found) > 20
    problems = []
    for reference in sorted(found, key=str):
        try:
            if not callable(reference.resolve()):
                problems.append(f"{reference} is no function")
        except ModuleNotFoundError as e:
            library = (e.name or "").split(".")[0]
            if library not in LIBRARIES or importlib.util.find_spec(library):
                problems.append(f"{reference}: {e}")
        except AttributeError as e:
            problems.append(f"{reference}: {e}")
    return problems


def test_every_reference_that_is_declared_can_be_resolved() -> None:
    with Worker("references", env=fakes.ENV, timeout_s=300) as worker:
        assert worker.call(here(unresolved)) == []
