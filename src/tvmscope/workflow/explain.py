"""Explains what is saved: the findings of a session, the kernels of a session or an artifact."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

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
    from tvmscope.workflow.options import Options
    from tvmscope.workflow.run import session_of

    session = session_of(artifacts.read(folder), Options())
    return replace(session, kernel_ir=artifacts.read_kernels(folder))


def find_kernel(session: Session, name: str, where: Path) -> tuple[KernelIR, ...]:
    """The kernel in every row that has it; an unknown name is answered with the nearest ones."""
    found = tuple(ir for ir in session.kernel_ir if ir.name == name)
    if found:
        return found
    known = list(dict.fromkeys(ir.name for ir in session.kernel_ir))
    if not known:
        raise UsageError(
            f"{where} describes no kernels; measure again with tvmscope analyze, or compile again"
        )
    inside = [k for k in known if name in k]
    near = list(dict.fromkeys([*inside, *get_close_matches(name, known, _MOST_NAMES, 0.4)]))
    shown = near[:_MOST_NAMES] or known[:_MOST_NAMES]
    word = "near names" if near else "some of its kernels"
    raise UsageError(f"no kernel named '{name}' in {where}; {word}: {', '.join(shown)}")
