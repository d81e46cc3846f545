"""Caches compiled artifacts, by everything that they depend on.

A key covers the model with its weights, target, options, tuning records, the versions of all
packages involved, plug-ins, and this program's own code. A look-up imports neither TVM nor torch.
`TVMSCOPE_COMPILE_CACHE=off` disables it; `tvmscope doctor --clear-cache` empties it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tvmscope import plugins
from tvmscope.core.artifact import Artifact
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.prepared import operators
from tvmscope.core.target import Target
from tvmscope.errors import TvmscopeError
from tvmscope.runtime import artifact as artifacts
from tvmscope.runtime.check import check_files
from tvmscope.storage.codec import encode
from tvmscope.storage.files import write_text_atomic

VARIABLE = "TVMSCOPE_COMPILE_CACHE"
MOST_BYTES = 4 << 30
"""If the cache is larger, the least recently used entries are removed."""
_FOLDER, _NAMES = "artifacts", "sources"
_PACKAGES = (
    "apache-tvm", "apache-tvm-ffi", "numpy", "onnx", "onnxslim", "onnxruntime", "torch",
    "torchvision", "transformers", "triton",
)  # fmt: skip


def surroundings(target: Target, host: Target, options: CompileOptions) -> str | None:
    """Return everything but the model; None if it is unknown, or the cache is disabled.

    A user's own pipeline may import anything, and a dump of the IR needs a compilation.
    """
    if os.environ.get(VARIABLE) == "off" or options.dump_ir is not None:
        return None
    if options.pipeline not in ("tvm", "tvmscope") or os.environ.get("TVM_HOME"):
        return None
    return json.dumps(
        [encode(target), encode(host), encode(options), _versions(), plugins.identities(), _code()],
        sort_keys=True,
    )


def key(ready: Prepared, around: str) -> str:
    """Return the key of a prepared model's artifact."""
    found = hashlib.sha256(around.encode())
    for file in (ready.json_path, ready.folder / operators.FILE_NAME):
        found.update(file.read_bytes() if file.is_file() else b"-")
    return found.hexdigest()


def fetch(cache: Path, name: str, output: Path) -> Artifact | None:
    """Copy an artifact into `output`, if it exists and is complete."""
    kept = cache / _FOLDER / name
    if not (kept / artifacts.META).is_file():
        return None
    try:
        found = artifacts.read(kept)
        check_files(found)
        output.mkdir(parents=True, exist_ok=True)
        for file in sorted(kept.iterdir(), key=lambda f: f.name == artifacts.META):
            shutil.copy(file, output / file.name)
        os.utime(kept)
    except (OSError, TvmscopeError):  # cleared meanwhile, or damaged: compile again
        shutil.rmtree(kept, ignore_errors=True)
        return None
    return replace(found, path=output)


def keep(cache: Path, name: str, folder: Path) -> None:
    """Store an artifact; if it cannot be written, it is not stored."""
    place = cache / _FOLDER
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=place, prefix="."))
        try:
            for file in folder.iterdir():
                if file.is_file():
                    shutil.copy(file, scratch / file.name)
            shutil.rmtree(place / name, ignore_errors=True)
            scratch.rename(place / name)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        _shrink(place)


def name_of(cache: Path, source: str, around: str) -> str | None:
    """Return the artifact that a source was compiled to, without reading the model."""
    try:
        return _name_file(cache, source, around).read_text()
    except OSError:
        return None


def keep_name(cache: Path, source: str, around: str, name: str) -> None:
    """Remember which artifact a source compiles to."""
    with contextlib.suppress(OSError):
        write_text_atomic(_name_file(cache, source, around), name)


def _name_file(cache: Path, source: str, around: str) -> Path:
    return cache / _NAMES / hashlib.sha256(f"{source}\n{around}".encode()).hexdigest()


def _shrink(place: Path) -> None:
    entries = [e for e in place.iterdir() if e.is_dir() and not e.name.startswith(".")]
    sizes = {e: sum(f.stat().st_size for f in e.iterdir()) for e in entries}
    total = sum(sizes.values())
    for entry in sorted(entries, key=lambda e: e.stat().st_mtime):
        if total <= MOST_BYTES:
            break
        shutil.rmtree(entry, ignore_errors=True)
        total -= sizes[entry]


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


@functools.cache
def _code() -> str:
    """Return a digest of this program and its shipped records; other commits differ."""
    root = Path(__file__).parents[1]
    found = hashlib.sha256()
    for file in sorted(f for f in root.rglob("*") if f.suffix in (".py", ".jsonl")):
        found.update(f"{file.relative_to(root)}\n".encode() + file.read_bytes())
    return found.hexdigest()
