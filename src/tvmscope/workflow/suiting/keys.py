"""The key of a suite's row: a rerun measures only problems whose key has changed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

from tvmscope.machine import cpu_features, cuda_device
from tvmscope.machine.environment import package_versions
from tvmscope.stages.options import Options
from tvmscope.stages.targets import threads_of
from tvmscope.storage.codec import encode
from tvmscope.storage.files import digest_file
from tvmscope.workflow.suiting.problems import Problem


def key_of(
    problem: Problem,
    options: Options,
    limits: dict[str, float | int | None],
    *,
    any_machine: bool = False,
) -> str:
    """Return SHA-256 over the problem's file, the options and limits, versions and the machine.

    On a cluster any machine may have measured it.
    """
    asked = replace(options, output=None, force=False, redact=False, command="")
    said = {
        "source": problem.source if problem.file is None else problem.name,
        "file": None if problem.file is None else _digest(problem.file),
        "inputs": None
        if options.load.inputs_file is None
        else digest_file(Path(options.load.inputs_file)),
        "options": encode(asked),
        "limits": limits,
        "threads": options.threads if any_machine else threads_of(options),
        "machine": package_versions() if any_machine else _machine(_gpu()),
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()


def _digest(file: Path) -> str | None:
    try:
        return digest_file(file)
    except OSError:  # gone since it was found: loading it reports that
        return None


def _gpu() -> str | None:
    gpu = cuda_device.find()
    return gpu.name if gpu else None


@cache
def _machine(gpu: str | None) -> dict[str, object]:
    return {
        "versions": package_versions(),
        "cpu": cpu_features.model_name(),
        "features": sorted(cpu_features.reported()),
        "gpu": gpu,
    }
