"""Explains saved results: the findings of a session, the kernels of a session or an artifact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from tvmscope.core.profile import Code, KernelIR
from tvmscope.core.row import RowKey
from tvmscope.core.session import FILE_NAME, Session, load
from tvmscope.errors import UsageError
from tvmscope.measure.remote import remote
from tvmscope.measure.worker import run_isolated
from tvmscope.messages import msg
from tvmscope.stages.diagnose import diagnose_session
from tvmscope.stages.places import ARTIFACTS

if TYPE_CHECKING:
    import tvmscope.compiler.describe.kernel_code

_CODE = remote(lambda: tvmscope.compiler.describe.kernel_code.read_code)
_META = "meta.json"
_MOST_NAMES = 8


def explain(path: Path) -> Session:
    """Return the session at `path` with the findings of today's rules; an artifact has only
    kernels."""
    return diagnose_session(_of_artifact(path) if _is_artifact(path) else load(path))


def _is_artifact(path: Path) -> bool:
    return (path / _META).is_file() and not (path / FILE_NAME).exists()


def _of_artifact(folder: Path) -> Session:
    """Return what an artifact knows about itself: model, target and kernels, no measurements."""
    from tvmscope.runtime import artifact as artifacts
    from tvmscope.stages.artifact import session_of
    from tvmscope.stages.options import Options

    session = session_of(artifacts.read(folder), Options())
    return replace(session, kernel_ir=artifacts.read_kernels(folder))


@dataclass(frozen=True)
class Kernels:
    """The kernels of a session or an artifact, and the source operators that each computes."""

    where: Path
    session: Session
    source_ops: dict[tuple[RowKey | None, str], frozenset[str]]
    """Operators by the row, None for an artifact, and the kernel's name."""

    def find(self, name: str) -> tuple[KernelIR, ...]:
        """Return the kernel in every row that has it; raise with the nearest name if unknown."""
        found = tuple(ir for ir in self.session.kernel_ir if ir.name == name)
        if found:
            return found
        known = list(dict.fromkeys(ir.name for ir in self.session.kernel_ir))
        if not known:
            raise UsageError(
                msg(
                    "{where} describes no kernels; measure again with tvmscope analyze, or "
                    "compile again",
                    where=self.where,
                )
            )
        inside = [k for k in known if name in k]
        near = list(dict.fromkeys([*inside, *get_close_matches(name, known, _MOST_NAMES, 0.4)]))
        shown = near[:_MOST_NAMES] or known[:_MOST_NAMES]
        word = msg("similar names") if near else msg("some of its kernels")
        raise UsageError(
            msg(
                "no kernel named '{name}' in {where}; {word}: {shown}",
                name=name,
                where=self.where,
                word=word,
                shown=shown,
            )
        )

    def computed_by(self, ir: KernelIR) -> frozenset[str]:
        """Return the source operators of one of its kernels; none if they are not known."""
        return self.source_ops.get((ir.key, ir.name), frozenset())

    def computing(self, ops: frozenset[str]) -> list[KernelIR]:
        """Return in each row the kernel that shares most of some operators, or the heaviest."""
        best: dict[RowKey | None, tuple[int, float, KernelIR]] = {}
        for ir in self.session.kernel_ir:
            shared = len(ops & self.computed_by(ir))
            rank = (shared, ir.flops or 0.0)
            if shared and (ir.key not in best or rank > best[ir.key][:2]):
                best[ir.key] = (*rank, ir)
        return [ir for *_, ir in best.values()]


def kernels_at(path: Path) -> Kernels:
    """Return the kernels of the session or artifact at `path`."""
    session = explain(path)
    ops: dict[tuple[RowKey | None, str], set[str]] = {}
    for profile in session.profiles:
        for kernel in profile.kernels:
            ops.setdefault((profile.key, kernel.name), set()).update(kernel.source_ops)
    if _is_artifact(path):
        from tvmscope.runtime import artifact as artifacts

        for call in artifacts.read(path).kernels:
            ops.setdefault((None, call.kernel), set()).update(call.source_ops)
    return Kernels(path, session, {key: frozenset(found) for key, found in ops.items()})


def side_by_side(name: str, places: Sequence[Kernels]) -> list[tuple[Kernels, KernelIR]]:
    """Return a kernel of the first path, and its counterparts: our other rows there, then those of
    the other paths.

    Counterparts compute the same source operators, whatever they are called; without known
    operators a kernel's counterpart has its name.
    """
    first, *others = places
    found = [(first, ir) for ir in first.find(name)]
    ops = frozenset().union(*(first.computed_by(ir) for _, ir in found))
    rows = {ir.key for _, ir in found}
    found += [
        (first, ir)
        for ir in first.computing(ops)
        if ir.key not in rows and ir.key is not None and ir.key.is_ours
    ]
    for other in others:
        found += [(other, ir) for ir in other.computing(ops) or other.find(name)]
    return found


def code_of(place: Kernels, ir: KernelIR, kind: Code) -> str:
    """Return the code of a kernel, from the artifact with which the row was measured."""
    folder = _artifact_of(place.where, ir)
    if not _is_artifact(folder):
        raise UsageError(
            msg(
                "{folder} is not there: the code of a kernel is read from its artifact; compile "
                "the model, and give the artifact",
                folder=folder,
            )
        )
    return run_isolated(_CODE, folder.absolute(), ir.name, kind)


def _artifact_of(path: Path, ir: KernelIR) -> Path:
    if ir.key is None:
        return path
    return (path if path.is_dir() else path.parent) / ARTIFACTS / ir.key.folder_name
