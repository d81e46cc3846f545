"""A folder of kernels to try on a GPU: the compiled kernels, and the failures.

`plan.json` lists units and their candidates, `kernels.tar.xz` contains the cubins (kernels of one
template have much in common, so one stream compresses them several times better than single files).
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvmscope.cuda import config as configs
from tvmscope.cuda import units
from tvmscope.cuda.cubins.compile_pool import Failure, Outcome
from tvmscope.cuda.cubins.compiled_kernel import CompiledKernel
from tvmscope.cuda.units import Unit
from tvmscope.errors import SchemaError
from tvmscope.messages import msg

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A compiled kernel of a unit, and the time that the cost model expects."""

    unit: Unit
    kernel: CompiledKernel
    estimate_us: float


def write_candidates(
    folder: Path, work: Sequence[tuple[Unit, float, Outcome]], context: dict[str, Any]
) -> int:
    """Write outcomes with their estimates; return the bytes on disk."""
    folder.mkdir(parents=True, exist_ok=True)
    entries: dict[str, dict[str, Any]] = {}
    with tarfile.open(folder / "kernels.tar.xz", "w:xz", preset=4) as archive:
        for number, (unit, estimate_us, outcome) in enumerate(work):
            entry = entries.setdefault(
                unit.key, {"unit": unit.to_json(), "candidates": [], "failures": []}
            )
            if isinstance(outcome, Failure):
                config = configs.to_json(outcome.job.config)
                entry["failures"].append({"config": config, "reason": outcome.reason})
                continue
            info = tarfile.TarInfo(f"{number}.cubin")
            info.size = len(outcome.cubin)
            archive.addfile(info, io.BytesIO(outcome.cubin))
            entry["candidates"].append(
                {"file": info.name, "estimate_us": estimate_us, "kernel": outcome.to_json()}
            )
    plan = {"schema_version": SCHEMA_VERSION, "context": context, "units": entries}
    (folder / "plan.json").write_text(json.dumps(plan, separators=(",", ":")))
    return sum(f.stat().st_size for f in folder.iterdir())


def read_candidates(folder: Path) -> Iterator[Candidate]:
    """Yield the candidates, unit by unit, in the order in which they were written."""
    plan = json.loads((folder / "plan.json").read_text())
    if plan.get("schema_version") != SCHEMA_VERSION:
        raise SchemaError(
            msg(
                "{folder}: plan of schema {version}, not {readable}",
                folder=folder,
                version=str(plan.get("schema_version")),
                readable=SCHEMA_VERSION,
            )
        )
    with tarfile.open(folder / "kernels.tar.xz") as archive:
        for entry in plan["units"].values():
            unit = units.from_json(entry["unit"])
            for item in entry["candidates"]:
                file = archive.extractfile(item["file"])
                if file is None:
                    raise SchemaError(
                        msg("{folder}: {file} is missing", folder=folder, file=item["file"])
                    )
                kernel = CompiledKernel.from_json(item["kernel"], file.read())
                yield Candidate(unit=unit, kernel=kernel, estimate_us=item["estimate_us"])
