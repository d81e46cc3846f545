"""Generated CUDA kernels of an artifact: their machine code, and how TVM calls them.

`cubins.bin` contains the code, `cubins.json` its table of contents. Loading registers a packed
function for each kernel, which the artifact's library calls by name with pointers and the launch's
size. A unit that NVIDIA's library computes has no code: its entry describes the call, and the
artifact contains the file that makes such calls.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvmscope.cuda.library.call import FILES, LibraryCall
from tvmscope.errors import RunError
from tvmscope.messages import msg
from tvmscope.runtime import load_model
from tvmscope.runtime.tables import read_table
from tvmscope.storage.codec import encode
from tvmscope.storage.files import write_text_atomic

CODE, TABLE = load_model.CODE, load_model.TABLE


@dataclass(frozen=True, kw_only=True)
class Cubin:
    """One kernel: the packed function that launches it, its symbol, and its resources."""

    name: str
    symbol: str
    offset: int
    size: int
    pointers: int
    hidden_pointers: int
    dependent: bool = False
    """Whether it is launched while the previous kernel still runs; it then waits itself."""
    registers: int | None = None
    shared_bytes: int | None = None
    local_bytes: int | None = None
    """Local memory per thread, such as spilled registers."""
    what: str = ""
    """A description of the unit and the configuration."""
    library: LibraryCall | None = None
    """The library's call that replaces the kernel."""


def save(
    kernels: Mapping[str, tuple[Cubin, bytes]],
    folder: Path,
    calls: Mapping[str, LibraryCall] | None = None,
) -> None:
    """Write code and table; nothing if there are neither kernels nor library calls."""
    if calls:
        for library in {call.library for call in calls.values()}:
            shutil.copyfile(FILES[library], folder / FILES[library].name)
        kernels = {**kernels, **{name: (_called(name, c), b"") for name, c in calls.items()}}
    if not kernels:
        return
    table = []
    with (folder / CODE).open("wb") as stream:
        for name, (cubin, code) in sorted(kernels.items()):
            entry = {**encode(cubin), "name": name, "offset": stream.tell(), "size": len(code)}
            stream.write(code)
            table.append(entry)
    write_text_atomic(folder / TABLE, json.dumps(table, indent=1))


def _called(name: str, call: LibraryCall) -> Cubin:
    return Cubin(
        name=name,
        symbol="",
        offset=0,
        size=0,
        pointers=len(call.arguments),
        hidden_pointers=0,
        what=call.config.label,
        library=call,
    )


def read(folder: Path) -> tuple[Cubin, ...]:
    """Return the table of an artifact; empty if it has no generated kernels."""
    return read_table(Cubin, folder / TABLE)


def register(tvm: Any, folder: Path, gpu: int = 0) -> None:
    """Let the artifact's library find its kernels, as the artifact's own loader does."""
    if not read(folder):
        return
    try:
        load_model.register_cubins(tvm, folder, gpu)
    except load_model.LoadError as e:
        raise RunError(msg("{folder}: {reason}", folder=folder, reason=str(e))) from e
