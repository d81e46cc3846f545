"""An artifact folder: its files, and its metadata written and read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tvmscope.core.artifact import ARTIFACT_SCHEMA, Artifact
from tvmscope.core.profile import KernelIR
from tvmscope.errors import SchemaError, UsageError
from tvmscope.messages import msg
from tvmscope.runtime.tables import damaged, read_table
from tvmscope.storage import message_table
from tvmscope.storage.codec import decode, encode
from tvmscope.storage.files import write_text_atomic

LIBRARY = "model.so"
WEIGHTS = "weights.bin"
META = "meta.json"
KERNELS = "kernels.json"
LOADER = "load_model.py"
"""The script that runs the artifact with TVM alone: a copy of the module of that name here."""


def save(artifact: Artifact, folder: Path) -> None:
    """Write meta.json into `folder`."""
    data = {"schema_version": ARTIFACT_SCHEMA, **encode(artifact)}
    del data["path"]  # a folder may be moved
    data[message_table.KEY] = message_table.table(data)
    write_text_atomic(folder / META, json.dumps(data, indent=1))


def save_kernels(kernels: Iterable[KernelIR], folder: Path) -> None:
    """Write kernels.json into `folder`: the data of profiles and reports about each kernel."""
    text = json.dumps([encode(kernel) for kernel in kernels], separators=(",", ":"))
    write_text_atomic(folder / KERNELS, text)


def read_kernels(folder: Path) -> tuple[KernelIR, ...]:
    """Read kernels.json; none if it is missing, as in artifacts of older versions."""
    return read_table(KernelIR, folder / KERNELS)


def read(folder: Path) -> Artifact:
    """Read meta.json; raise for other schemas and files that are not artifacts."""
    file = folder / META
    if not file.is_file():
        raise UsageError(
            msg(
                "{folder} is not an artifact: no {meta}; make one with tvmscope compile",
                folder=folder,
                meta=META,
            )
        )
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as e:
        raise damaged(file, e) from e
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != ARTIFACT_SCHEMA:
        raise SchemaError(
            msg(
                "{file} has artifact schema {version}, this tvmscope reads {readable}; "
                "compile the model again with this version",
                file=file,
                version=str(version),
                readable=ARTIFACT_SCHEMA,
            )
        )
    try:
        known = message_table.read(data.get(message_table.KEY))
        return decode(Artifact, data | {"path": str(folder)}, known)
    except SchemaError as e:
        raise damaged(file, e) from e
