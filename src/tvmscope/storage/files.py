"""Writes files: text atomically, arrays under any name."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_UNPACK = {b"\x1f\x8b": gzip.decompress, b"\xfd7zXZ\0": lzma.decompress}
"""The decompressor by a compressed file's first bytes."""


def read_text(path: Path) -> str:
    """Read a text file; a compressed one is decompressed, whatever its name."""
    data = path.read_bytes()
    unpack = next((f for start, f in _UNPACK.items() if data.startswith(start)), None)
    try:
        return (unpack(data) if unpack else data).decode("utf-8")
    except (EOFError, zlib.error, lzma.LZMAError) as e:  # OSError (gzip's other error) propagates
        raise OSError(f"{path} is damaged: {e}") from e


def write_compressed(path: Path, text: str) -> None:
    """Write like `write_text_atomic`, compressed as the name's suffix says: .xz, else gzip. Equal
    texts give equal files."""
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
    except BaseException:  # even an interrupt must leave no scratch file; it is raised again below
        Path(temporary).unlink(missing_ok=True)
        raise


def digest_file(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


_ALIGNMENT = 64
"""The alignment of arrays in a file, as numpy and TVM need them in memory."""
_HEADER = struct.Struct("<26xHH")
"""The lengths of name and extra field at the end of a zip member's local header."""
_EXTRA = struct.Struct("<HH")
_PADDING_ID = 0xD935
"""The extra field that zipalign pads with."""
_ZIP64_BYTES = 20
"""The bytes that `force_zip64` adds to the extra field."""


def write_npz(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write like np.savez, which takes names as keywords and so cannot store one called `file`.

    The arrays are at multiples of 64 bytes, so that `map_npz` need not copy them.
    """
    import numpy as np

    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy")
            start = archive.start_dir + _HEADER.size + len(member.filename.encode()) + _ZIP64_BYTES
            padding = -(start + _EXTRA.size) % _ALIGNMENT
            member.extra = _EXTRA.pack(_PADDING_ID, padding) + bytes(padding)
            with archive.open(member, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asarray(array), allow_pickle=False)


def map_npz(path: Path) -> dict[str, Any]:
    """Return the arrays of an npz file as views of the file: processes that read it share memory.

    They can be written to, which copies the written pages and leaves the file unchanged. A
    compressed array, or one that is not aligned, is read.
    """
    import numpy as np

    found: dict[str, Any] = {}
    with zipfile.ZipFile(path) as archive, path.open("rb") as stream:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            stream.seek(member.header_offset)
            start = stream.tell() + _HEADER.size + sum(_HEADER.unpack(stream.read(_HEADER.size)))
            stream.seek(start)
            view = None
            if member.compress_type == zipfile.ZIP_STORED:
                view = _mapped(path, stream)
            if view is None:
                with archive.open(member) as data:
                    view = np.lib.format.read_array(data, allow_pickle=False)
            found[name] = view
    return found


def _mapped(path: Path, stream: Any) -> Any:
    """Return the array whose header is next in the stream; None if it cannot be mapped."""
    import numpy as np

    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    version = np.lib.format.read_magic(stream)
    if version not in read:
        return None
    shape, fortran, dtype = read[version](stream)
    offset = stream.tell()
    if offset % _ALIGNMENT or dtype.hasobject or 0 in shape:
        return None
    order: Any = "F" if fortran else "C"
    mapped = np.memmap(path, dtype=dtype, mode="c", offset=offset, shape=shape or (1,), order=order)
    return np.asarray(mapped).reshape(shape)
