"""Finds the tuning records to read and the file to write, according to `--db`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from tvmscope.core.target import Target
from tvmscope.core.tuning import SHIPPED_NAME
from tvmscope.errors import UsageError
from tvmscope.machine import cpu_features, cuda_device
from tvmscope.messages import msg
from tvmscope.runtime import tvm_compat
from tvmscope.stages.options import NO_RECORDS
from tvmscope.stages.places import TUNING_LOGS
from tvmscope.stages.planning.tuned_rows import Records
from tvmscope.tuning.records.database import SHIPPED, Database
from tvmscope.tuning.records.matching import Found, Host, choose

FILE_NAME = "records.jsonl"
_PATTERN = "*.jsonl"


def databases(db: str | None, target: Target | None = None) -> list[Database]:
    """Return the databases to search, in order: `--db PATH` alone, or the user's and the shipped.

    Of the user's folders the target's own comes first; others may have records for a CPU whose
    features this one all has.
    """
    if db == NO_RECORDS:
        return []
    if db is not None:
        path = Path(db)
        files = _inside(path) if path.is_dir() else [path]
        return [Database(file) for file in files]
    shipped = [Database(file, name=SHIPPED_NAME) for file in sorted(SHIPPED.glob(_PATTERN))]
    return [*(Database(file) for file in _inside(TUNING_LOGS, target)), *shipped]


def _inside(folder: Path, target: Target | None = None) -> list[Path]:
    """Return files of a folder and its folders; with a target only its device's, its own first."""
    files = sorted((*folder.glob(_PATTERN), *folder.glob(f"*/{_PATTERN}")))
    if target is None:
        return files
    own = target_folder(target).name
    mine = [file for file in files if file.parent.name.startswith(f"{target.device}_")]
    return sorted(mine, key=lambda file: file.parent.name != own)


def target_folder(target: Target) -> Path:
    """Return `tuning_logs/<device>_<architecture>/`; its records name the features they need."""
    return TUNING_LOGS / re.sub(r"[^\w.+-]+", "_", f"{target.device}:{target.arch}")


def file_to_write(db: str | None, target: Target) -> Path:
    """Return the file to which trials are added."""
    if db == NO_RECORDS:
        raise UsageError(msg("--db none stores no records; give a file, or omit --db"))
    if db is None:
        return target_folder(target) / FILE_NAME
    path = Path(db)
    return path / FILE_NAME if path.is_dir() or not path.suffix else path


def host(target: Target, threads: int) -> Host:
    """Return this machine's properties that records are matched with."""
    return Host(target=target, threads=threads, tvm=tvm_compat.installed_version(), cpu=cpu(target))


def cpu(target: Target) -> str:
    """Return the model name of the CPU or GPU that a target runs on here."""
    if target.kind == "cuda":
        device = cuda_device.find()
        return device.name if device else ""
    return cpu_features.model_name()


def find_choices(
    db: str | None, target: Target, threads: int, workloads: Iterable[str] | None = None
) -> Found:
    """Return the choices for a compilation for `target`, and warnings for the user."""
    return choose(databases(db, target), host(target, threads), workloads)


def records_of(db: str | None) -> Records:
    """Return the look-up of `--db` for the planning of rows."""
    return partial(find_choices, db)
