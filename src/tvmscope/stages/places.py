"""The folders of tvmscope: sessions beside the user's work, caches in the user's cache folder."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import platformdirs

from tvmscope.core.session import FILE_NAME
from tvmscope.errors import UsageError
from tvmscope.messages import msg

RESULTS = Path("results")
TUNING_LOGS = Path("tuning_logs")
ARTIFACTS = "artifacts"
"""The folder of a session's artifacts, one for each compiled row."""


def cache_folder() -> Path:
    """Return the user's cache folder for tvmscope."""
    return Path(platformdirs.user_cache_dir("tvmscope"))


def data_folder() -> Path:
    """Return the folder of data that tvmscope collects on this machine and cannot make again."""
    return Path(platformdirs.user_data_dir("tvmscope"))


def session_folder(name: str, target: str, started: datetime) -> Path:
    """Return `results/<model>-<target>-<time>/`, without characters that a file system rejects."""
    stem = f"{name}-{target}-{started:%Y%m%d-%H%M%S}"
    folder = RESULTS / re.sub(r"[^\w.+-]+", "_", stem)[:120]
    count = 1
    while folder.exists():
        count += 1
        folder = folder.with_name(f"{folder.name.split('~')[0]}~{count}")
    return folder


def claim(folder: Path, *, force: bool, marker: str = FILE_NAME) -> Path:
    """Refuse to overwrite earlier work unless `force` allows it."""
    if folder.is_file():
        raise UsageError(msg("{folder} is a file; give a folder", folder=folder))
    if (folder / marker).exists() and not force:
        raise UsageError(
            msg(
                "{folder} already holds a {marker}; will not overwrite without --force",
                folder=folder,
                marker=marker,
            )
        )
    if folder.is_dir() and any(folder.iterdir()) and not (folder / marker).exists() and not force:
        raise UsageError(msg("{folder} is not empty; give a new folder, or --force", folder=folder))
    return folder
