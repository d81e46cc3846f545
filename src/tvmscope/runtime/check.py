"""Whether an artifact is whole and can run here; asked before its code is loaded."""

from __future__ import annotations

import platform
from pathlib import Path

from tvmscope.core.artifact import Artifact
from tvmscope.core.target import Target
from tvmscope.errors import RunError, SchemaError, UsageError
from tvmscope.machine import cpu_features, cuda_device
from tvmscope.messages import Text, msg
from tvmscope.parsing import parse_device
from tvmscope.runtime import cubins, cuda_code
from tvmscope.runtime.artifact import LIBRARY, META, WEIGHTS
from tvmscope.storage.files import digest_file


def check(artifact: Artifact, *, weights_apart: bool = False) -> None:
    """Refuse an artifact that cannot run here, with the reason, before its code is loaded."""
    check_files(artifact, weights_apart=weights_apart)
    if artifact.target.kind == "cuda":
        _check_gpu(artifact)
    else:
        _check_cpu(artifact)


def check_kind(artifact: Artifact, device: str | None) -> None:
    """Raise if an artifact was not compiled for the requested kind of device."""
    kind, built = device and parse_device(device)[0], artifact.target.device
    if kind and kind != built:
        raise UsageError(
            msg(
                "{path} is compiled for {built}, not {device}; compile with --target {named}",
                path=artifact.path,
                built=built,
                device=str(device),
                named=kind,
            )
        )


def gpu_number(device: str | None) -> int | None:
    """Return the number of the GPU that a device names, if it names one; raise if there is no such
    GPU."""
    number = None if device is None else parse_device(device)[1]
    if number is None or number < len(found := cuda_device.find_all()):
        return number
    if not found:
        raise UsageError(msg("cuda:{number}: there is no CUDA device here", number=number))
    raise UsageError(
        msg(
            "cuda:{number}: there is no such GPU here; there are {gpus}",
            number=number,
            gpus=[f"cuda:{index} ({gpu.name})" for index, gpu in enumerate(found)],
        )
    )


def check_files(artifact: Artifact, *, weights_apart: bool = False) -> None:
    """Raise if an artifact is incomplete."""
    _check_file(artifact.path / LIBRARY, artifact.library_digest)
    if artifact.stored_digest is not None and not weights_apart:
        _check_file(artifact.path / WEIGHTS, artifact.stored_digest)
    if artifact.generated_digest is not None:
        _check_file(artifact.path / cubins.CODE, artifact.generated_digest)
    for part in artifact.fallbacks:
        _check_file(artifact.path / part.file, part.digest)


def _check_file(file: Path, digest: str) -> None:
    if not file.is_file():
        raise SchemaError(
            msg(
                "{folder} has no {file}; compile the model again",
                folder=file.parent,
                file=file.name,
            )
        )
    if digest_file(file) != digest:
        raise SchemaError(
            msg(
                "{file} is corrupted: its digest is not the one in {meta}; compile the model again",
                file=file,
                meta=META,
            )
        )


def _check_cpu(artifact: Artifact) -> None:
    if problem := cpu_problem(artifact.target):
        raise RunError(
            msg(
                "{path} is built for {problem}; run it on such a machine, or compile with "
                "--target cpu on this one",
                path=artifact.path,
                problem=problem,
            )
        )


def cpu_problem(target: Target) -> Text | None:
    """Say why this machine cannot run code for a CPU target; None if it can."""
    machine = target.triple.split("-")[0] if target.triple else None
    if machine and machine.replace("arm64", "aarch64") != platform.machine():
        return msg("{machine}, this machine is {here}", machine=machine, here=platform.machine())
    missing = [f for f in target.features if f not in cpu_features.reported()]
    if not missing:
        return None
    cap = cpu_features.cap()
    if cap is not None and any(cap.hides(f) for f in missing):
        return msg(
            "{target}; this CPU lacks {missing} ({variable} is set)",
            target=target.label,
            missing=missing,
            variable=cpu_features.ISA_VARIABLE,
        )
    return msg("{target}; this CPU lacks {missing}", target=target.label, missing=missing)


def _check_gpu(artifact: Artifact) -> None:
    device = cuda_device.find()
    if device is None:
        raise RunError(
            msg(
                "{path} is built for {target} and this machine has no CUDA device; run it on a "
                "machine "
                "with one, or compile with --target cpu",
                path=artifact.path,
                target=artifact.target.label,
            )
        )
    if not _runs_on(artifact.target.arch, device.arch):
        raise RunError(
            msg(
                "{path} is built for {arch}; {device} is {here}; compile with --target cuda "
                "on this machine",
                path=artifact.path,
                arch=artifact.target.arch,
                device=device.name,
                here=device.arch,
            )
        )
    if problem := cuda_code.problem(artifact.versions.get("cuda"), device):
        raise RunError(
            msg(
                "{path} cannot run on {device}: {problem}",
                path=artifact.path,
                device=device.name,
                problem=problem,
            )
        )


def _runs_on(built: str, arch: str) -> bool:
    """Whether machine code can run: code for sm_86 runs on 8.6 to 8.9, for sm_90a on 9.0 only."""
    code, here = _capability(built), _capability(arch)
    if built.endswith("a"):
        return here == code
    return here // 10 == code // 10 and here >= code


def _capability(arch: str) -> int:
    return int("".join(c for c in arch if c.isdigit()) or 0)
