"""An artifact folder with code, weights and metadata, which is checked before it is loaded.

Loading an artifact runs machine code from its `model.so`: load only what you trust.
"""

from __future__ import annotations

import contextlib
import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tvmscope.core.artifact import ARTIFACT_SCHEMA, Artifact
from tvmscope.core.model import TensorSpec
from tvmscope.core.profile import KernelIR
from tvmscope.core.target import Target
from tvmscope.errors import RunError, SchemaError, TvmscopeError, UsageError, one_line
from tvmscope.machine import cpu_features, cuda_device
from tvmscope.messages import Text, msg
from tvmscope.runtime import cubins, cuda_code, fallback, tvm_compat, weights
from tvmscope.runtime.tables import damaged, read_table
from tvmscope.storage import message_table
from tvmscope.storage.codec import decode, encode
from tvmscope.storage.files import digest_file, write_text_atomic

if TYPE_CHECKING:
    from tvm.runtime import Device
    from tvm.runtime.vm import VirtualMachine

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


def check(artifact: Artifact, *, weights_apart: bool = False) -> None:
    """Refuse an artifact that cannot run here, with the reason, before its code is loaded."""
    check_files(artifact, weights_apart=weights_apart)
    if artifact.target.kind == "cuda":
        _check_gpu(artifact)
    else:
        _check_cpu(artifact)


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


class LoadedArtifact:
    """A callable model: numpy arrays or DLPack tensors in, numpy arrays out, by output name."""

    def __init__(
        self,
        artifact: Artifact,
        machine: VirtualMachine,
        device: Device,
        ways: Mapping[str, fallback.Way] | None = None,
    ) -> None:
        self.artifact = artifact
        self.ways = dict(ways or {})
        """How the parts that run in a framework get their tensors."""
        self.device = device
        self.machine = machine
        self._main = machine["main"]

    def place(self, arrays: Mapping[str, Any]) -> list[Any]:
        """Check the inputs against the artifact and copy them to the device, in order."""
        specs = self.artifact.inputs
        unknown = sorted(set(arrays) - {s.name for s in specs})
        missing = [s.name for s in specs if s.name not in arrays]
        if unknown or missing:
            wanted = [s.name for s in specs]
            problem = (
                msg("missing {missing}", missing=missing)
                if missing
                else msg("unknown {unknown}", unknown=unknown[0])
            )
            raise UsageError(
                msg(
                    "inputs do not fit ({problem}); the model takes: {wanted}",
                    problem=problem,
                    wanted=wanted,
                )
            )
        return [self._place_one(spec, arrays[spec.name]) for spec in specs]

    def _place_one(self, spec: TensorSpec, value: Any) -> Any:
        tensor = self._import(spec, value) if hasattr(value, "__dlpack__") else np.asarray(value)
        shape, dtype = tuple(int(d) for d in tensor.shape), str(tensor.dtype)
        if shape != spec.shape or dtype != spec.dtype:
            raise UsageError(
                msg(
                    "input '{name}' must be {wanted}, got {given}",
                    name=spec.name,
                    wanted=f"{spec.dtype}{list(spec.shape)}",
                    given=f"{dtype}{list(shape)}",
                )
            )
        if isinstance(tensor, np.ndarray):
            # not ascontiguousarray, which turns a scalar into a vector
            from tvm import runtime

            return runtime.tensor(np.asarray(tensor, order="C"), self.device)
        return tensor if tensor.device == self.device else tensor.copyto(self.device)

    def _import(self, spec: TensorSpec, value: Any) -> Any:
        """Return a view of the tensor if TVM can take one; else (unaligned, strided) an array."""
        if isinstance(value, np.ndarray):
            return value
        with contextlib.suppress(Exception):  # numpy's error below is the better one
            from tvm import runtime

            return runtime.from_dlpack(value)
        try:
            return np.from_dlpack(value)
        except Exception as e:  # each library has its own reasons, from gradients to devices
            raise UsageError(
                msg(
                    "input '{name}' cannot be taken by DLPack: {reason}; give a contiguous tensor, "
                    "or a numpy array",
                    name=spec.name,
                    reason=one_line(e),
                )
            ) from e

    def run(self, placed: list[Any]) -> Any:
        """Run once on placed inputs; return TVM tensors without waiting for a GPU."""
        return self._main(*placed)

    def name_outputs(self, result: Any) -> dict[str, np.ndarray[Any, Any]]:
        """Return results as numpy arrays by output name."""
        values = [result] if hasattr(result, "numpy") else list(result)
        return {
            spec.name: value.numpy()
            for spec, value in zip(self.artifact.outputs, values, strict=True)
        }

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, np.ndarray[Any, Any]]:
        """Run with inputs by position or by name."""
        if len(args) > len(self.artifact.inputs):
            raise UsageError(
                msg(
                    "the model takes {count} inputs, got {given}",
                    count=len(self.artifact.inputs),
                    given=len(args),
                )
            )
        named = {spec.name: a for spec, a in zip(self.artifact.inputs, args, strict=False)}
        if twice := named.keys() & kwargs.keys():
            raise UsageError(
                msg(
                    "input '{name}' is given by position and by name; give it once",
                    name=min(twice),
                )
            )
        return self.name_outputs(self.run(self.place(named | kwargs)))


def load_callable(
    folder: Path, *, threads: int | None = None, arrays: Sequence[Any] | None = None
) -> LoadedArtifact:
    """Check an artifact and load it; `threads` defaults to all usable cores.

    `arrays` are its weights, if they are already loaded.
    """
    artifact = read(folder)
    check(artifact, weights_apart=arrays is not None)
    tvm_compat.import_tvm(torch=False)
    import tvm
    from tvm.runtime.vm import VirtualMachine  # tvm.relax would need the compiler

    built = artifact.versions.get("tvm")
    if built != tvm.__version__:
        raise RunError(
            msg(
                "{folder} was built with TVM {built}, this is TVM {version}; compile the model "
                "again, or install that version",
                folder=folder,
                built=str(built),
                version=tvm.__version__,
            )
        )
    tvm_compat.set_thread_count(tvm, threads or cpu_features.usable_cores())
    device = tvm.cpu(0)
    if artifact.target.kind == "cuda":
        tvm_compat.choose_cuda_compiler()
        device = tvm.cuda(0)
    used = threads or cpu_features.usable_cores()
    parts = [(part, (folder / part.file).read_bytes()) for part in artifact.fallbacks]
    ways = fallback.register(parts, used, None if artifact.target.kind == "llvm" else device)
    try:
        cubins.register(tvm, folder)
        library = tvm.runtime.load_module(str(folder / LIBRARY))
        machine = VirtualMachine(library, device)
    except TvmscopeError:
        raise
    except Exception as e:  # the loader raises RuntimeError and its own error types
        raise RunError(
            msg(
                "{file} cannot be loaded: {reason}; compile the model again",
                file=folder / LIBRARY,
                reason=one_line(e),
            )
        ) from e
    if artifact.stored:
        _bind_weights(machine, artifact, folder / WEIGHTS, arrays)
    return LoadedArtifact(replace(artifact, path=folder), machine, device, ways)


def _bind_weights(
    machine: VirtualMachine, artifact: Artifact, file: Path, arrays: Sequence[Any] | None
) -> None:
    """Replace `main` by a function that takes inputs only, with the weights bound after them."""
    from tvm import runtime

    try:
        found = weights.load(artifact.stored, file) if arrays is None else arrays
        tensors = [runtime.from_dlpack(array) for array in found]
        machine.save_function("main", "main", *tensors)
    except Exception as e:  # numpy and TVM have their own types for a mismatch
        raise RunError(
            msg(
                "{file} cannot be loaded: {reason}; compile the model again",
                file=file,
                reason=one_line(e),
            )
        ) from e
