"""Writing files: text that is whole or not there, arrays under any name."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_UNPACK = {b"\x1f\x8b": gzip.decompress, b"\xfd7zXZ\0": lzma.decompress}
"""By what a compressed file begins with."""


def read_text(path: Path) -> str:
    """A text file; a compressed one is unpacked, whatever its name."""
    data = path.read_bytes()
    unpack = next((f for start, f in _UNPACK.items() if data.startswith(start)), None)
    try:
        return (unpack(data) if unpack else data).decode("utf-8")
    except (EOFError, zlib.error, lzma.LZMAError) as e:  # OSError, the last one, goes on by itself
        raise OSError(f"{path} is damaged: {e}") from e


def write_compressed(path: Path, text: str) -> None:
    """Like `write_text_atomic`, packed as the name ends: .xz, else gzip. Equal texts give equal
    files."""
    data = text.encode()
    packed = lzma.compress(data, preset=9) if path.suffix == ".xz" else gzip.compress(data, mtime=0)
    _write_atomic(path, packed)


def write_text_atomic(path: Path, text: str) -> None:
    """Write beside `path`, then rename over it."""
    _write_atomic(path, text.encode())


def _write_atomic(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp makes files private
        os.replace(temporary, path)
    except BaseException:  # also an interrupt must leave no scratch file; it goes on below
        Path(temporary).unlink(missing_ok=True)
        raise


def digest_file(path: Path) -> str:
    """SHA-256 of a file's content, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_npz(path: Path, arrays: Mapping[str, Any]) -> None:
    """Like np.savez, which takes names as keywords and so cannot hold one called `file`."""
    import numpy as np

    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asarray(array), allow_pickle=False)
