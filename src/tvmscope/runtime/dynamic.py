"""An artifact of several sizes: one folder, one file of weights, a library for each size.

The folder itself is an artifact of one size, and works as such. Sizes without their own kernels are
computed in parts, or padded to the next size, depending on what was verified at compilation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tvmscope.core.artifact import Artifact
from tvmscope.core.prepared.dynamic import Dynamic
from tvmscope.errors import UsageError
from tvmscope.messages import msg
from tvmscope.runtime import artifact as artifacts
from tvmscope.runtime import weights
from tvmscope.runtime.check import check_kind, gpu_number
from tvmscope.runtime.loaded_artifact import LoadedArtifact, load_callable
from tvmscope.storage.codec import decode, encode
from tvmscope.storage.files import digest_file, write_text_atomic

Array = np.ndarray[Any, Any]
DYNAMIC = "dynamic.json"
_PARTS = "sizes"


def folder_of(folder: Path, dynamic: Dynamic, size: int) -> Path:
    """Return the folder of the artifact of a size."""
    return folder if size == dynamic.base else folder / _PARTS / str(size)


def read(folder: Path) -> Dynamic:
    """Read dynamic.json."""
    return decode(Dynamic, json.loads((folder / DYNAMIC).read_text(encoding="utf-8")))


def save(dynamic: Dynamic, folder: Path) -> None:
    """Write dynamic.json."""
    write_text_atomic(folder / DYNAMIC, json.dumps(encode(dynamic), indent=1))


def share_weights(folder: Path, dynamic: Dynamic) -> float:
    """Merge the weights of all sizes into one file, each array once; return its relative size."""
    places: dict[bytes, int] = {}
    found: dict[int, tuple[Artifact, list[int]]] = {}
    arrays: list[Array] = []
    most = 1
    for size in dynamic.range.sizes:
        part = artifacts.read(folder_of(folder, dynamic, size))
        own = weights.load(part.stored, part.path / artifacts.WEIGHTS) if part.stored else []
        most = max(most, sum(array.nbytes for array in own))
        numbers = []
        for array in own:
            key = hashlib.sha256(repr((array.shape, str(array.dtype))).encode())
            key.update(np.ascontiguousarray(array).view(np.uint8).data)
            if key.digest() not in places:
                places[key.digest()] = len(arrays)
                arrays.append(array)
            numbers.append(places[key.digest()])
        found[size] = (part, numbers)
    if not arrays:
        return 1.0
    merged = folder / f"{artifacts.WEIGHTS}.new"
    stored = weights.save(arrays, merged)
    for part, _ in found.values():
        (part.path / artifacts.WEIGHTS).unlink(missing_ok=True)
    merged.rename(folder / artifacts.WEIGHTS)
    digest = digest_file(folder / artifacts.WEIGHTS)
    for part, numbers in found.values():
        table = tuple(stored[number] for number in numbers)
        shared = replace(part, stored=table, stored_digest=digest if table else None)
        artifacts.save(shared, part.path)
    return sum(array.nbytes for array in arrays) / most


class LoadedDynamic:
    """A callable model: takes numpy arrays of any size in the range, returns arrays by name."""

    def __init__(self, dynamic: Dynamic, parts: Mapping[int, LoadedArtifact]) -> None:
        self.dynamic = dynamic
        self.parts = dict(parts)
        self.artifact = self.parts[dynamic.base].artifact

    def size_of(self, arrays: Mapping[str, Any]) -> int:
        """Return the size of the dimensions that vary."""
        wanted = self.dynamic.range
        found = {
            int(arrays[name].shape[axis])
            for name, axis in wanted.places
            if name in arrays and len(arrays[name].shape) > axis
        }
        if len(found) != 1 or not wanted.low <= min(found) <= wanted.high:
            places = [f"{name}:{axis}" for name, axis in wanted.places]
            raise UsageError(
                msg(
                    "the sizes of {places} must be equal and from {low} to {high}, got {found}",
                    places=places,
                    low=wanted.low,
                    high=wanted.high,
                    found=sorted(found),
                )
            )
        return found.pop()

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Array]:
        """Run with inputs by position or by name."""
        names = [spec.name for spec in self.artifact.inputs]
        given = dict(zip(names, args, strict=False)) | kwargs
        size = self.size_of(given)
        if size in self.parts:
            return self.parts[size](**given)
        match self.dynamic.rest:
            case "split":
                return self._split(given, size)
            case "pad":
                return self._padded(given, size)
        raise UsageError(
            msg(
                "size {size} has no kernels, and this model can neither be split nor padded; "
                "give one of {sizes}, or compile with --dynamic ...@{size}",
                size=size,
                sizes=list(self.parts),
            )
        )

    def _split(self, given: Mapping[str, Any], size: int) -> dict[str, Array]:
        """Compute parts of sizes with kernels, the largest first; concatenate their results."""
        found: list[dict[str, Array]] = []
        start = 0
        while start < size:
            left = size - start
            count = max((s for s in self.parts if s <= left), default=left)
            part = {
                name: np.take(np.asarray(given[name]), range(start, start + count), axis)
                for name, axis in self.dynamic.range.places
            }
            whole = {**given, **part}
            found.append(
                self.parts[count](**whole) if count in self.parts else self._padded(whole, count)
            )
            start += count
        return {name: self._joined(name, [f[name] for f in found]) for name in found[0]}

    def _joined(self, name: str, values: Sequence[Array]) -> Array:
        axis = self.dynamic.output_axes[name]
        return values[0] if axis is None else np.concatenate(values, axis)

    def _padded(self, given: Mapping[str, Any], size: int) -> dict[str, Array]:
        """Pad with zeros up to the next size with kernels; cut the results."""
        whole = min(s for s in self.parts if s >= size)
        padded = dict(given)
        for name, axis in self.dynamic.range.places:
            array = np.asarray(given[name])
            pads = [(0, whole - size if n == axis else 0) for n in range(array.ndim)]
            padded[name] = np.pad(array, pads)
        results = self.parts[whole](**padded)
        return {
            name: value
            if self.dynamic.output_axes[name] is None
            else np.take(value, range(size), self.dynamic.output_axes[name])
            for name, value in results.items()
        }


def load_any(
    folder: Path, threads: int | None = None, device: str | None = None
) -> LoadedArtifact | LoadedDynamic:
    """Load an artifact of one size (on the GPU that `device` names) or of several, for a CPU."""
    if device is not None:
        check_kind(artifacts.read(folder), device)
    if (folder / DYNAMIC).is_file():
        return load(folder, threads)
    return load_callable(folder, threads=threads, gpu=gpu_number(device))


def load(folder: Path, threads: int | None = None) -> LoadedDynamic:
    """Load all sizes; they share one copy of the weights."""
    dynamic = read(folder)
    sizes = dynamic.range.sizes
    described = {s: artifacts.read(folder_of(folder, dynamic, s)) for s in sizes}
    stored = [tensor for s in sizes for tensor in described[s].stored]
    arrays = iter(weights.load(stored, folder / artifacts.WEIGHTS) if stored else ())
    parts = {}
    for size in sizes:
        own = [next(arrays) for _ in described[size].stored]
        parts[size] = load_callable(described[size].path, threads=threads, arrays=own)
    return LoadedDynamic(dynamic, parts)
