"""Writing files: text that is whole or not there, arrays under any name."""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_text_atomic(path: Path, text: str) -> None:
    """Write beside `path`, then rename over it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
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
