"""Explains what is saved: the findings of a session, the kernels of a session or an artifact."""

from __future__ import annotations

from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path

from tvmscope.core.model import Model
from tvmscope.core.profile import KernelIR
from tvmscope.core.session import FILE_NAME, Session, load
from tvmscope.diagnose.engine import diagnose
from tvmscope.errors import UsageError

_META = "meta.json"
_MOST_NAMES = 8


def explain(path: Path) -> Session:
    """The session at `path` with the findings of today's rules; an artifact has only kernels."""
    if path.is_dir() and (path / _META).is_file() and not (path / FILE_NAME).exists():
        return diagnose(_of_artifact(path))
    return diagnose(load(path))


def _of_artifact(folder: Path) -> Session:
    """What an artifact says of itself: model, target and kernels, and nothing measured."""
    from tvmscope.compiler import artifact as artifacts
    from tvmscope.workflow import environment

    artifact = artifacts.read(folder)
    return Session(
        command="",
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        environment=environment.collect(artifact.threads or artifact.target.cores),
        model=Model(
            name=artifact.model,
            source=artifact.source,
            format="onnx" if artifact.source.endswith(".onnx") else "torch",
            inputs=artifact.inputs,
            outputs=artifact.outputs,
            digest=artifact.model_digest,
            weights="file",
        ),
        targets=(artifact.target,),
        kernel_ir=artifacts.read_kernels(folder),
        warnings=artifact.warnings,
    )


def find_kernel(session: Session, name: str, where: Path) -> KernelIR:
    """The kernel's description; an unknown name is answered with the nearest ones."""
    known = {ir.name: ir for ir in session.kernel_ir}
    if name in known:
        return known[name]
    if not known:
        raise UsageError(
            f"{where} describes no kernels; measure again with tvmscope analyze, or compile again"
        )
    inside = [k for k in known if name in k]
    near = list(dict.fromkeys([*inside, *get_close_matches(name, known, _MOST_NAMES, 0.4)]))
    shown = near[:_MOST_NAMES] or list(known)[:_MOST_NAMES]
    word = "near names" if near else "some of its kernels"
    raise UsageError(f"no kernel named '{name}' in {where}; {word}: {', '.join(shown)}")
